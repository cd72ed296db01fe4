// Command budget measures the size and the language of the code, and fails when a figure is above its line in budget.txt. A change
// may lower a line; one that raises a line gives the reason in its commit. Run it with `make budget`.
package main

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// module is the path of the repository's module.
const module = "github.com/podops-dev/podops"

// budgetFile has the lines of the budget.
const budgetFile = "hack/budget/budget.txt"

func main() {
	lower := flag.Bool("lower", false, "lower each line of "+budgetFile+" to its figure")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: budget [-lower]\n\n"+
			"Compares figures of the code with "+budgetFile+", and exits with 1 if one is above its line.")
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := run(os.Stdout, ".", *lower); err != nil {
		fmt.Fprintln(os.Stderr, "budget:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, root string, lower bool) error {
	sources, err := read(root)
	if err != nil {
		return err
	}
	path := filepath.Join(root, budgetFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the budget: %w", err)
	}
	budget, err := parse(string(text))
	if err != nil {
		return err
	}
	figures, err := measure(sources)
	if err != nil {
		return err
	}
	if lower {
		return os.WriteFile(path, []byte(budget.lowered(figures)), 0o600)
	}
	report, err := budget.compare(figures)
	_, writeErr := io.WriteString(out, report)
	return errors.Join(err, writeErr)
}

// read returns the Go files below a root, by path, without folders of tools and test data.
func read(root string) (map[string]string, error) {
	sources := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "bin" || entry.Name() == ".git" || entry.Name() == "testdata"):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		sources[filepath.ToSlash(name)] = string(text)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the sources: %w", err)
	}
	return sources, nil
}
