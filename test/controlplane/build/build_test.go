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
		"oldest/go.mod":         "module " + modulePath + "/oldest\n\nrequire (\n\tk8s.io/kubernetes v1.35.0\n)\n",
		"oldest/go.sum":         "sum\n",
		"oldest/main.go":        "package main\n",
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
	for file, wanted := range map[string]struct{ newest, oldest bool }{
		"go.mod":                {newest: true},
		"go.sum":                {newest: true},
		"cmd/kube/main.go":      {newest: true},
		"cmd/kube/new.go":       {newest: true},
		"kubelet/run.go":        {newest: true},
		"stages/pod.yaml":       {newest: true},
		"oldest/go.mod":         {oldest: true},
		"oldest/go.sum":         {oldest: true},
		"oldest/main.go":        {oldest: true},
		"kubelet/run_test.go":   {},
		"stages/README.md":      {},
		"cmd/controlplane/x.go": {},
	} {
		t.Run(file, func(t *testing.T) {
			source := newSource(t)
			newest, oldest := stampOf(t, Newest(), source), stampOf(t, Oldest(), source)
			if newest == oldest || stampOf(t, Newest(), source) != newest || stampOf(t, Oldest(), source) != oldest {
				t.Fatalf("nothing changed, and %s or %s did", newest, oldest)
			}
			content, _ := os.ReadFile(filepath.Join(source, file)) // empty for a new file
			write(t, filepath.Join(source, file), string(content)+"\n// more\n")
			if changed := stampOf(t, Newest(), source) != newest; changed != wanted.newest {
				t.Errorf("stamp of the newest version changed: want %t, got %t", wanted.newest, changed)
			}
			if changed := stampOf(t, Oldest(), source) != oldest; changed != wanted.oldest {
				t.Errorf("stamp of the oldest version changed: want %t, got %t", wanted.oldest, changed)
			}
		})
	}
}

func stampOf(t *testing.T, target Target, source string) string {
	t.Helper()
	key, err := target.stamp(t.Context(), filepath.Join(source, target.module))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestUpToDate(t *testing.T) {
	target, bin := Newest(), t.TempDir()
	if target.upToDate(bin, "key") {
		t.Error("an empty folder must not be up to date")
	}
	write(t, filepath.Join(bin, binaryFile), "")
	write(t, filepath.Join(bin, stampFile), "key")
	if target.upToDate(bin, "key") {
		t.Error("without the links it must not be up to date")
	}
	if err := target.link(bin); err != nil {
		t.Fatal(err)
	}
	if !target.upToDate(bin, "key") {
		t.Error("a complete folder must be up to date")
	}
	if target.upToDate(bin, "another key") {
		t.Error("it must not be up to date for another key")
	}
	if err := os.Remove(filepath.Join(bin, binaryFile)); err != nil {
		t.Fatal(err)
	}
	if target.upToDate(bin, "key") {
		t.Error("with dangling links it must not be up to date")
	}
}

// TestTheOldestVersionSharesTheOtherPrograms shows that the folder of the oldest version is complete with the
// programs of the folder above it.
func TestTheOldestVersionSharesTheOtherPrograms(t *testing.T) {
	above := t.TempDir()
	bin := filepath.Join(above, Oldest().bin)
	write(t, filepath.Join(bin, binaryFile), "old")
	write(t, filepath.Join(bin, stampFile), "key")
	if err := Oldest().link(bin); err != nil {
		t.Fatal(err)
	}
	if Oldest().upToDate(bin, "key") {
		t.Error("without the newest version it must not be up to date")
	}
	write(t, filepath.Join(above, binaryFile), "new")
	if !Oldest().upToDate(bin, "key") {
		t.Error("a complete folder must be up to date")
	}
	for name, want := range map[string]string{"kube-apiserver": "old", "kube-scheduler": "old", "etcd": "new", "kubelets": "new"} {
		if got, err := os.ReadFile(filepath.Join(bin, name)); err != nil || string(got) != want {
			t.Errorf("%s is %s, %v, want the %s binary", name, got, err, want)
		}
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
