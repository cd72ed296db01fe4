// Command flagsdoc writes docs/flags.md from the flags of the manager. Run it with `make docs`.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/podops-dev/podops/pkg/operator"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "usage: flagsdoc FILE")
		return 2
	}
	text, err := page()
	if err == nil {
		err = os.WriteFile(args[0], []byte(text), 0o644)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "flagsdoc: %v\n", err)
		return 1
	}
	return 0
}

// page returns the content of docs/flags.md.
func page() (string, error) {
	// The default of --namespace depends on it.
	if err := os.Unsetenv("POD_NAMESPACE"); err != nil {
		return "", fmt.Errorf("unsetting POD_NAMESPACE: %w", err)
	}
	flags := flag.NewFlagSet("manager", flag.ContinueOnError)
	config.RegisterFlags(flags)
	var options operator.Options
	options.AddFlags(flags)
	return render(flags, groups())
}

const introduction = `<!-- Written by make docs; edit the flags in pkg/operator or the groups in hack/flagsdoc. -->
# Flags of the manager

A duration has a unit, as in ` + "`300ms`, `10s` or `1m30s`" + `. Lists are separated by commas. ` + "`manager --help`" + ` prints the
same flags.

In a cluster, flags are arguments of the container in
[config/manager/deployment.yaml](../config/manager/deployment.yaml). With ` + "`make run`" + ` they are ` + "`ARGS`" + `.
`

// render returns the page for a set of flags. Every flag is in one group.
func render(flags *flag.FlagSet, groups []group) (string, error) {
	var text strings.Builder
	text.WriteString(introduction)
	left := map[string]*flag.Flag{}
	flags.VisitAll(func(f *flag.Flag) { left[f.Name] = f })
	var errs []error
	for _, group := range groups {
		fmt.Fprintf(&text, "\n## %s\n\n| Flag | Type | Default | Meaning |\n|---|---|---|---|\n", group.title)
		for _, name := range group.flags {
			f, ok := left[name]
			if !ok {
				errs = append(errs, fmt.Errorf("group %q has --%s, which is no flag or in two groups: edit hack/flagsdoc/groups.go", group.title, name))
				continue
			}
			delete(left, name)
			fmt.Fprintf(&text, "| `--%s` | %s | %s | %s |\n", f.Name, typeOf(f), defaultOf(f), escaped(f.Usage))
		}
	}
	for _, name := range sortedNames(left) {
		errs = append(errs, fmt.Errorf("--%s is in no group: add it in hack/flagsdoc/groups.go", name))
	}
	return text.String(), errors.Join(errs...)
}

// typeOf returns the kind of value that a flag takes.
func typeOf(f *flag.Flag) string {
	getter, ok := f.Value.(flag.Getter)
	if !ok {
		return "text"
	}
	switch getter.Get().(type) {
	case bool:
		return "true or false"
	case time.Duration:
		return "duration"
	case int, float64:
		return "number"
	default:
		return "text"
	}
}

func defaultOf(f *flag.Flag) string {
	if f.DefValue == "" {
		return ""
	}
	return "`" + f.DefValue + "`"
}

// escaped returns a text with the characters escaped that have a meaning in a table cell.
func escaped(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "\n", " ").Replace(text)
}

func sortedNames(flags map[string]*flag.Flag) []string {
	names := make([]string, 0, len(flags))
	for name := range flags {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
