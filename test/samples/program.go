package samples

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// programs has a folder for each program. A line "//sample <name>" in a file is replaced by the sample,
// "//sample <name> | until <text>" by its lines before the line that begins with the text, and
// "//sample <name> | from <text>" by that line and the rest. The other lines add the parts that the
// document leaves out, and run the program.
//
//go:embed testdata/programs
var programs embed.FS

const (
	programsRoot = "testdata/programs"
	directive    = "//sample "
	suffix       = ".txt"

	// Module is the path of the module that WriteModule writes.
	Module = "samples.test"

	podops = "github.com/podops-dev/podops"
)

// WriteModule writes a module with all programs into dir. It sees the repository at root as the module of a
// user would, with the same versions of everything else. It returns the names of the samples in it, sorted.
func WriteModule(dir, root string) ([]string, error) {
	all, err := All()
	if err != nil {
		return nil, err
	}
	own, err := pages(root)
	if err != nil {
		return nil, err
	}
	all = append(all, own...)
	if err := writeModFiles(dir, root); err != nil {
		return nil, err
	}
	// The API of the example operator is in a module with more dependencies than these programs need.
	api := os.DirFS(filepath.Join(root, "examples", "kvstore", "apis"))
	if err := os.CopyFS(filepath.Join(dir, "kvstoreapi"), api); err != nil {
		return nil, fmt.Errorf("copying the API of the example operator: %w", err)
	}
	used := map[string]bool{}
	err = fs.WalkDir(programs, programsRoot, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := programs.ReadFile(path)
		if err != nil {
			return err
		}
		source, err := assemble(string(text), all, used)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		target := filepath.Join(dir, strings.TrimSuffix(strings.TrimPrefix(path, programsRoot), suffix))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		return os.WriteFile(target, []byte(source), 0o600)
	})
	if err != nil {
		return nil, fmt.Errorf("writing the programs: %w", err)
	}
	names := make([]string, 0, len(used))
	for name := range used {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// pages returns the samples of the guides of this repository, which follow the same way.
func pages(root string) ([]Sample, error) {
	var all []Sample
	for _, page := range []string{"operation-controllers.md", "service-controllers.md"} {
		text, err := os.ReadFile(filepath.Join(root, "docs", page))
		if err != nil {
			return nil, err
		}
		found, err := parse(page, string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// Environment returns the environment of go commands in the module: they need no network, and have the flags of
// this process, with which the dependencies are compiled already.
func Environment() []string {
	flags := strings.TrimSpace(os.Getenv("GOFLAGS") + " -mod=mod")
	return append(os.Environ(), "GOFLAGS="+flags, "GOPROXY=off", "GOWORK=off")
}

func writeModFiles(dir, root string) error {
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return err
	}
	own := strings.Replace(string(mod), "module "+podops+"\n", "module "+Module+"\n", 1)
	own += fmt.Sprintf("\nrequire %s v0.0.0\n\nreplace %s => %s\n", podops, podops, root)
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(own), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "go.sum"), sum, 0o600)
}

// assemble replaces the directives of a file by samples, and adds their names to used.
func assemble(text string, all []Sample, used map[string]bool) (string, error) {
	var source strings.Builder
	for line := range strings.Lines(text) {
		request, isDirective := strings.CutPrefix(strings.TrimSpace(line), directive)
		if !isDirective {
			source.WriteString(line)
			continue
		}
		name, part, _ := strings.Cut(request, " | ")
		sample, err := Find(all, name)
		if err != nil {
			return "", err
		}
		used[name] = true
		edited, err := apply(sample.Text, edits()[name])
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		cut, err := partOf(edited, part)
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		source.WriteString(cut)
	}
	return source.String(), nil
}

func apply(text string, list []edit) (string, error) {
	for _, e := range list {
		if !strings.Contains(text, e.old) {
			return "", fmt.Errorf("the sample has no %q", e.old)
		}
		text = strings.ReplaceAll(text, e.old, e.new)
	}
	return text, nil
}

// partOf returns the lines that a directive requests.
func partOf(text, part string) (string, error) {
	if part == "" {
		return text, nil
	}
	side, start, _ := strings.Cut(part, " ")
	at := strings.Index("\n"+text, "\n"+start)
	switch {
	case start == "" || at < 0:
		return "", fmt.Errorf("no line begins with %q", start)
	case side == "until":
		return text[:at], nil
	case side == "from":
		return text[at:], nil
	default:
		return "", fmt.Errorf("unknown part %q", part)
	}
}
