package samples_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podops-dev/podops/test/samples"
)

const (
	// programs has a folder for each program. A line "//sample <name>" in a file is replaced by the
	// sample, "//sample <name> | until <text>" by its lines before the line that begins with the text,
	// and "//sample <name> | from <text>" by that line and the rest. What else is there completes
	// what the document leaves out, and runs it.
	programs = "testdata/programs"

	directive = "//sample "
	suffix    = ".txt"

	// module is the module of the programs.
	module = "samples.test"
)

// TestGoSamples compiles and runs every Go sample in a module of its own, in which the samples are as in the
// document but for the edits of edits().
func TestGoSamples(t *testing.T) {
	all, err := samples.All()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	writeModule(t, dir)
	used := map[string]bool{}
	err = filepath.WalkDir(programs, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		source, err := assemble(string(text), all, used)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		target := filepath.Join(dir, strings.TrimSuffix(strings.TrimPrefix(path, programs), suffix))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		return os.WriteFile(target, []byte(source), 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, sample := range all {
		if sample.Language == "go" && !used[sample.Name()] {
			t.Errorf("sample %q is in no program", sample.Name())
		}
	}
	run(t, dir, "vet", "./...")
	run(t, dir, "test", "./...")
}

// TestEveryEditIsOfASample finds edits of samples that do not exist.
func TestEveryEditIsOfASample(t *testing.T) {
	all, err := samples.All()
	if err != nil {
		t.Fatal(err)
	}
	for name, list := range edits() {
		if _, err := samples.Find(all, name); err != nil {
			t.Error(err)
		}
		for _, e := range list {
			if e.reason == "" {
				t.Errorf("%s: an edit has no reason", name)
			}
		}
	}
}

// writeModule writes go.mod and go.sum of a module that sees this repository as a user's module would, with
// the same versions of everything else.
func writeModule(t *testing.T, dir string) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	const podops = "github.com/podops-dev/podops"
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	own := strings.Replace(string(mod), "module "+podops+"\n", "module "+module+"\n", 1)
	own += fmt.Sprintf("\nrequire %s v0.0.0\n\nreplace %s => %s\n", podops, podops, root)
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"go.mod": own, "go.sum": string(sum)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// run runs the go command in the module, which needs no network.
func run(t *testing.T, dir string, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	t.Logf("go %s\n%s", strings.Join(args, " "), output)
}

// assemble replaces the directives of a file by samples.
func assemble(text string, all []samples.Sample, used map[string]bool) (string, error) {
	var source strings.Builder
	for line := range strings.Lines(text) {
		request, isDirective := strings.CutPrefix(strings.TrimSpace(line), directive)
		if !isDirective {
			source.WriteString(line)
			continue
		}
		name, part, _ := strings.Cut(request, " | ")
		sample, err := samples.Find(all, name)
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
