package build

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// newSource creates a folder with the layout of this module.
func newSource(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":                "module " + modulePath + "\n\nrequire (\n\tk8s.io/kubernetes v1.37.1\n)\n",
		"go.sum":                "sum\n",
		"cmd/kube/main.go":      "package main\n",
		"kubelet/run.go":        "package kubelet\n",
		"kubelet/run_test.go":   "package kubelet\n",
		"stages/pod.yaml":       "kind: Stage\n",
		"stages/README.md":      "words\n",
		"cmd/controlplane/x.go": "package main\n",
	} {
		write(t, filepath.Join(folder, name), content)
	}
	return folder
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestStampChangesWithTheSources(t *testing.T) {
	for file, wanted := range map[string]bool{
		"go.mod":                true,
		"go.sum":                true,
		"cmd/kube/main.go":      true,
		"cmd/kube/new.go":       true,
		"kubelet/run.go":        true,
		"stages/pod.yaml":       true,
		"kubelet/run_test.go":   false,
		"stages/README.md":      false,
		"cmd/controlplane/x.go": false,
	} {
		t.Run(file, func(t *testing.T) {
			source := newSource(t)
			before := stampOf(t, source)
			if again := stampOf(t, source); again != before {
				t.Fatalf("nothing changed, and %s became %s", before, again)
			}
			content, _ := os.ReadFile(filepath.Join(source, file)) // empty for a new file
			write(t, filepath.Join(source, file), string(content)+"\n// more\n")
			if changed := stampOf(t, source) != before; changed != wanted {
				t.Errorf("stamp changed: want %t, got %t", wanted, changed)
			}
		})
	}
}

func stampOf(t *testing.T, source string) string {
	t.Helper()
	key, err := stamp(t.Context(), source)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestUpToDate(t *testing.T) {
	bin := t.TempDir()
	if upToDate(bin, "key") {
		t.Error("an empty folder must not be up to date")
	}
	write(t, filepath.Join(bin, binaryFile), "")
	write(t, filepath.Join(bin, stampFile), "key")
	if upToDate(bin, "key") {
		t.Error("without the links it must not be up to date")
	}
	if err := link(bin); err != nil {
		t.Fatal(err)
	}
	if !upToDate(bin, "key") {
		t.Error("a complete folder must be up to date")
	}
	if upToDate(bin, "another key") {
		t.Error("it must not be up to date for another key")
	}
	if err := os.Remove(filepath.Join(bin, binaryFile)); err != nil {
		t.Fatal(err)
	}
	if upToDate(bin, "key") {
		t.Error("with dangling links it must not be up to date")
	}
}

func TestLinkFlagsHaveTheVersionOfGoMod(t *testing.T) {
	flags, err := linkFlags(newSource(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"-X k8s.io/component-base/version.gitVersion=v1.37.1", "-X k8s.io/component-base/version.gitMajor=1",
		"-X k8s.io/component-base/version.gitMinor=37", "-X k8s.io/client-go/pkg/version.gitVersion=v1.37.1",
	} {
		if !strings.Contains(flags+" ", want+" ") {
			t.Errorf("no %s in %s", want, flags)
		}
	}
	if flags, err := linkFlags(t.TempDir()); err == nil {
		t.Errorf("without go.mod: %s", flags)
	}
}

func TestSource(t *testing.T) {
	checkout := t.TempDir()
	module := filepath.Join(checkout, "test", "controlplane")
	write(t, filepath.Join(module, "go.mod"), "module "+modulePath+"\n")
	write(t, filepath.Join(checkout, "go.mod"), "module github.com/podops-dev/podops\n")
	write(t, filepath.Join(module, "build", "x.go"), "")
	write(t, filepath.Join(checkout, "pkg", "x.go"), "")
	for _, from := range []string{checkout, module, filepath.Join(module, "build"), filepath.Join(checkout, "pkg")} {
		if got, err := Source(from); err != nil || got != module {
			t.Errorf("from %s: want %s, got %s, %v", from, module, got, err)
		}
	}
	if got, err := Source(t.TempDir()); err == nil {
		t.Errorf("outside of a checkout: %s", got)
	}
}
