// Command graph prints which room of this repository imports which, and fails when a package imports one of a layer above, or is
// in no layer, or when rooms import more other rooms than maxArrows. -packages prints the imports of each package, too. Run it with
// `make graph`.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// module is the path of the repository's module.
const module = "github.com/podops-dev/podops"

func main() {
	packages := flag.Bool("packages", false, "print the imports of each package, too")
	flag.Parse()
	os.Exit(run(os.Stdout, os.Stderr, *packages))
}

func run(out, complaints io.Writer, each bool) int {
	packages, err := list(".")
	if err != nil {
		fmt.Fprintf(complaints, "graph: %v\n", err)
		return 1
	}
	text, err := draw(packages, layers(), each)
	fmt.Fprint(out, text)
	if err != nil {
		fmt.Fprintf(complaints, "graph: %v\n", err)
		return 1
	}
	return 0
}

// imports has the packages that a package imports, by package. Paths are below the module; packages
// of others are left out.
type imports map[string][]string

// list reads the imports of all packages of the repository with `go list`. Adapters may be modules
// of their own.
func list(root string) (imports, error) {
	folders := []string{root}
	for _, pattern := range []string{"adapters/*/go.mod", "pkg/adapters/*/go.mod"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, fmt.Errorf("looking for modules: %w", err)
		}
		for _, file := range files {
			folders = append(folders, filepath.Dir(file))
		}
	}
	packages := imports{}
	for _, folder := range folders {
		command := exec.Command("go", "list", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, "./...")
		command.Dir, command.Stderr = folder, os.Stderr
		output, err := command.Output()
		if err != nil {
			return nil, fmt.Errorf("running go list in %s: %w", folder, err)
		}
		packages.read(string(output))
	}
	return packages, nil
}

// read adds the output of `go list`: a package and its imports in each line.
func (i imports) read(text string) {
	for line := range strings.Lines(text) {
		paths := strings.Fields(line)
		if len(paths) == 0 {
			continue
		}
		var ours []string
		for _, path := range paths[1:] {
			if name, ok := strings.CutPrefix(path, module+"/"); ok {
				ours = append(ours, name)
			}
		}
		slices.Sort(ours)
		i[strings.TrimPrefix(paths[0], module+"/")] = ours
	}
}

// placed is the imports with the index of the layer of each package, the highest 0.
type placed struct {
	imports imports
	layers  []layer
	layer   map[string]int
}

// draw returns the graph as text, and an error that names every package without a layer, every import of a layer above, and imports
// between more rooms than maxArrows. With each, it has the imports of each package.
func draw(packages imports, layers []layer, each bool) (string, error) {
	p, err := place(packages, layers)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	rooms, arrows := 0, 0
	var errs []error
	for i, layer := range layers {
		below := p.below(i)
		fmt.Fprintln(&text, strings.TrimRight(fmt.Sprintf("%-24s %s", layer.name, strings.Join(p.names(below), ", ")), " "))
		for _, name := range p.in(i) {
			if each {
				fmt.Fprintln(&text, strings.TrimRight(fmt.Sprintf("  %-38s %s", name, strings.Join(packages[name], " ")), " "))
			}
			errs = append(errs, p.upwards(name)...)
		}
		if layer.isRoom {
			rooms++
			arrows += len(slices.DeleteFunc(below, func(other int) bool { return !layers[other].isRoom }))
		}
	}
	fmt.Fprintf(&text, "\n%d packages in %d rooms, %d imports between rooms, %d upwards\n", len(packages), rooms, arrows, len(errs))
	if arrows > maxArrows {
		errs = append(errs, fmt.Errorf("%d imports between rooms, at most %d: find a package that belongs into its importers' room", arrows, maxArrows))
	}
	return text.String(), errors.Join(errs...)
}

// below returns the layers that the packages of a layer import, without itself.
func (p placed) below(layer int) []int {
	var below []int
	for _, name := range p.in(layer) {
		for _, imported := range p.imports[name] {
			if other, known := p.layer[imported]; known && other != layer {
				below = append(below, other)
			}
		}
	}
	slices.Sort(below)
	return slices.Compact(below)
}

// names returns the names of layers.
func (p placed) names(layers []int) []string {
	names := make([]string, len(layers))
	for i, layer := range layers {
		names[i] = p.layers[layer].name
	}
	return names
}

func place(packages imports, layers []layer) (placed, error) {
	p := placed{imports: packages, layers: layers, layer: map[string]int{}}
	var errs []error
	for _, name := range packages.names() {
		best := -1
		for i, layer := range layers {
			for _, pattern := range layer.packages {
				if exact, ok := fits(pattern, name); ok && exact > best {
					best, p.layer[name] = exact, i
				}
			}
		}
		if best < 0 {
			errs = append(errs, fmt.Errorf("%s is in no layer: add it in hack/graph/layers.go and docs/architecture.md", name))
		}
	}
	return p, errors.Join(errs...)
}

// in returns the packages of a layer, by name.
func (p placed) in(layer int) []string {
	return slices.DeleteFunc(p.imports.names(), func(name string) bool { return p.layer[name] != layer })
}

// upwards returns an error for each import of a layer above. A package that is not listed, because
// it has files for other platforms only, counts to the layer of its importer.
func (p placed) upwards(name string) []error {
	var errs []error
	for _, imported := range p.imports[name] {
		layer, known := p.layer[imported]
		if known && layer < p.layer[name] {
			errs = append(errs, fmt.Errorf("%s (%s) imports %s (%s), which is above",
				name, p.layers[p.layer[name]].name, imported, p.layers[layer].name))
		}
	}
	return errs
}

func (i imports) names() []string {
	names := make([]string, 0, len(i))
	for name := range i {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
