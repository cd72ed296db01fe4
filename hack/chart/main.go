// Command chart writes the Helm chart of PodOps from the manifests that kubectl podops install applies, and from the
// flags of the manager. Run it with `make chart`.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(arguments []string) int {
	if len(arguments) != 2 {
		fmt.Fprintln(os.Stderr, "usage: chart PLUGIN FOLDER (the kubectl plugin, and the folder of the chart)")
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	all, err := files(ctx, plugin(arguments[0]))
	if err == nil {
		err = replace(arguments[1], all)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "chart: %v\n", err)
		return 1
	}
	return 0
}

// files returns the files of the chart, by their paths in it.
func files(ctx context.Context, p plugin) (map[string]string, error) {
	all, err := templates(ctx, p)
	if err != nil {
		return nil, err
	}
	flags, err := managerFlags()
	if err != nil {
		return nil, err
	}
	schema, err := schemaOf(flags)
	if err != nil {
		return nil, err
	}
	all["templates/_helpers.tpl"] = helpers
	all["Chart.yaml"] = description
	all["values.yaml"] = valuesOf(flags)
	all["values.schema.json"] = schema
	return all, nil
}

const description = `# Written by make chart.
apiVersion: v2
name: podops
description: Rollouts that lose no request and break no rule
type: application
version: 0.0.0
appVersion: dev
kubeVersion: ">=1.35.0-0"
home: https://github.com/podops-dev/podops
`

// replace replaces the files of a folder.
func replace(folder string, files map[string]string) error {
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("removing the last chart: %w", err)
	}
	var errs []error
	for name, text := range files {
		path := filepath.Join(folder, name)
		errs = append(errs, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
	}
	return errors.Join(errs...)
}
