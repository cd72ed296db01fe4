package samples

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestGoSamples compiles and runs every Go sample in a module of its own, in which the samples are as in the
// document but for the edits of edits().
func TestGoSamples(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	used, err := WriteModule(dir, root)
	if err != nil {
		t.Fatal(err)
	}
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	own, err := pages(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, sample := range append(all, own...) {
		if sample.Language == "go" && !slices.Contains(used, sample.Name()) {
			t.Errorf("sample %q is in no program", sample.Name())
		}
	}
	run(t, dir, "vet", "./...")
	run(t, dir, "test", "-vet=off", "./...")
}

// TestEveryEditIsOfASample finds edits of samples that do not exist.
func TestEveryEditIsOfASample(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	for name, list := range edits() {
		if _, err := Find(all, name); err != nil {
			t.Error(err)
		}
		for _, e := range list {
			if e.reason == "" {
				t.Errorf("%s: an edit has no reason", name)
			}
		}
	}
}

func TestAnEditThatDoesNotFitIsAnError(t *testing.T) {
	if _, err := apply("package a\n", []edit{{old: "package b", new: "package c", reason: importPath}}); err == nil {
		t.Error("no error")
	}
	if _, err := partOf("package a\n", "until func"); err == nil {
		t.Error("no error of a part that is not there")
	}
}

func run(t *testing.T, dir string, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", args...)
	command.Dir, command.Env = dir, Environment()
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	t.Logf("go %s\n%s", strings.Join(args, " "), output)
}
