// Command defects shows that the laws of package world can fail. It builds the schedules with one defect of PodOps at a
// time, plays them until a law fails, and prints which one, and how many schedules that took.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
)

// defects is the directory of the patches, in that of the module.
const defects = "testdata/defects"

func main() {
	seeds := flag.Int("seeds", 2000, "how many schedules of seeds follow the stories")
	only := flag.String("defect", "*", "which patches, by a pattern of their names without .patch")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *only, *seeds)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run prints the table of the defects. Its error has every defect that no law found.
func run(ctx context.Context, only string, seeds int) error {
	patches, err := filepath.Glob(filepath.Join(defects, only+".patch"))
	if err != nil {
		return fmt.Errorf("the pattern %q: %w", only, err)
	}
	if len(patches) == 0 {
		return fmt.Errorf("no patch in %s matches %q", defects, only)
	}
	fmt.Println("| Defect | Failed | Schedule | Played |\n|---|---|---|---|")
	var failed []error
	for _, patch := range patches {
		name := strings.TrimSuffix(filepath.Base(patch), ".patch")
		row, err := play(ctx, patch, seeds)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", patch, err))
			continue
		}
		fmt.Printf("| `%s` %s\n", name, row)
	}
	return errors.Join(failed...)
}

// play returns the law that failed with a defect, as the rest of a row of the table.
func play(ctx context.Context, patch string, seeds int) (string, error) {
	scratch, err := os.MkdirTemp("", "defect-")
	if err != nil {
		return "", fmt.Errorf("making a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	overlay, err := apply(ctx, patch, scratch)
	if err != nil {
		return "", err
	}
	program := filepath.Join(scratch, "world.test")
	built := exec.CommandContext(ctx, "go", "test", "-vet=off", "-ldflags=-w", "-tags=defects", "-overlay", overlay, "-c", "-o", program, ".")
	if out, err := built.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building with the defect: %w\n%s", err, out)
	}
	played := exec.CommandContext(ctx, program, "-test.run", "^TestDefect$", "-test.timeout", "12h", "-seeds", fmt.Sprint(seeds))
	played.Env = append(os.Environ(), "GOMAXPROCS=1")
	out, err := played.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("no law found the defect: %w\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if row, ok := strings.CutPrefix(line, "found: "); ok {
			return strings.TrimSpace(row), nil
		}
	}
	return "", fmt.Errorf("the schedules printed no result:\n%s", out)
}

// apply applies a patch to copies of the files that it changes, and returns the overlay of go build that has them.
func apply(ctx context.Context, patch, scratch string) (string, error) {
	text, err := os.ReadFile(patch)
	if err != nil {
		return "", fmt.Errorf("reading the patch: %w", err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	replaced := map[string]string{}
	for line := range strings.Lines(string(text)) {
		file, ok := strings.CutPrefix(line, "+++ b/")
		if !ok {
			continue
		}
		file = strings.TrimSpace(file)
		source, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return "", fmt.Errorf("the patch does not apply any more, write it again: %w", err)
		}
		changed := filepath.Join(scratch, file)
		if err := os.MkdirAll(filepath.Dir(changed), 0o700); err != nil {
			return "", fmt.Errorf("making a directory: %w", err)
		}
		if err := os.WriteFile(changed, source, 0o600); err != nil {
			return "", fmt.Errorf("copying %s: %w", file, err)
		}
		replaced[filepath.Join(root, file)] = changed
	}
	git := exec.CommandContext(ctx, "git", "apply", "-")
	git.Dir, git.Stdin = scratch, strings.NewReader(string(text))
	if out, err := git.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the patch does not apply any more, write it again: %w\n%s", err, out)
	}
	content, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", fmt.Errorf("encoding the overlay: %w", err)
	}
	overlay := filepath.Join(scratch, "overlay.json")
	if err := os.WriteFile(overlay, content, 0o600); err != nil {
		return "", fmt.Errorf("writing the overlay: %w", err)
	}
	return overlay, nil
}
