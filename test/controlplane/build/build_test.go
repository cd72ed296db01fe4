package build

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// newSource creates a folder with the layout of this module.
func newSource(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":                "module " + modulePath + "\n\ngo 1.26\n\nrequire (\n\tgo.etcd.io/etcd/server/v3 v3.7.0\n\tk8s.io/kubernetes v1.37.1\n)\n",
		"go.sum":                "sum\n",
		"cmd/kube/main.go":      "package main\n\nfunc main() { print(\"kube\") }\n",
		"cmd/kubelets/main.go":  "package main\n\nfunc main() { print(\"kubelets\") }\n",
		"kubelet/run.go":        "package kubelet\n",
		"kubelet/run_test.go":   "package kubelet\n",
		"stages/pod.yaml":       "kind: Stage\n",
		"stages/README.md":      "words\n",
		"cmd/controlplane/x.go": "package main\n",
		"oldest/go.mod":         "module " + modulePath + "/oldest\n\ngo 1.26\n\nrequire (\n\tk8s.io/kubernetes v1.35.0\n)\n",
		"oldest/go.sum":         "sum\n",
		"oldest/main.go":        "package main\n\nfunc main() { print(\"oldest\") }\n",
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
		"cmd/kubelets/main.go":  {newest: true},
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

// expectPrograms compares what the programs print.
func expectPrograms(t *testing.T, bin string, want map[string]string) {
	t.Helper()
	for name, text := range want {
		got, err := exec.CommandContext(t.Context(), filepath.Join(bin, name)).CombinedOutput()
		if err != nil || string(got) != text {
			t.Errorf("%s prints %q, %v, want %q", name, got, err, text)
		}
	}
}

// provide runs a target and returns its output.
func provide(t *testing.T, target Target, source, bin string, origin Origin, first ...string) (string, error) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	failure := target.Run(t.Context(), source, bin, origin, first, out)
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text), failure
}

// TestBuildsWhatIsNotUpToDate shows that a build is done once, and again when a program is missing.
func TestBuildsWhatIsNotUpToDate(t *testing.T) {
	source, above := newSource(t), t.TempDir()
	built := Origin{mode: modeBuild}
	want := map[string]string{"kube-apiserver": "kube", "etcd": "kube", "kubectl": "kube", "kubelets": "kubelets"}
	for _, step := range []struct {
		arrange func()
		builds  bool
	}{
		{func() {}, true},
		{func() {}, false},
		{func() { remove(t, above, "kube") }, true},
		{func() { remove(t, above, "kubelets") }, true},
		{func() { remove(t, above, "kubectl") }, true},
		{func() { write(t, filepath.Join(source, "cmd/kubelets/more.go"), "package main\n") }, true},
	} {
		step.arrange()
		out, err := provide(t, Newest(), source, above, built)
		if err != nil {
			t.Fatal(err)
		}
		if builds := !strings.Contains(out, "is up to date"); builds != step.builds {
			t.Errorf("built: want %t, output:\n%s", step.builds, out)
		}
		expectPrograms(t, above, want)
	}

	// The folder of the oldest version is complete with the programs of the folder above it.
	if _, err := provide(t, Oldest(), source, above, built); err != nil {
		t.Fatal(err)
	}
	expectPrograms(t, filepath.Join(above, "oldest"), map[string]string{
		"kube-apiserver": "oldest", "kube-scheduler": "oldest", "etcd": "kube", "kubectl": "kube", "kubelets": "kubelets",
	})
}

func remove(t *testing.T, elements ...string) {
	t.Helper()
	if err := os.Remove(filepath.Join(elements...)); err != nil {
		t.Fatal(err)
	}
}

// TestABrokenSourceLeavesTheLastBuild shows the errors of the compiler, and that programs stay.
func TestABrokenSourceLeavesTheLastBuild(t *testing.T) {
	source, bin := newSource(t), t.TempDir()
	if _, err := provide(t, Newest(), source, bin, Origin{mode: modeBuild}); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(source, "cmd/kube/broken.go"), "package main\n\nvar x int = \"text\"\n")
	_, err := provide(t, Newest(), source, bin, Origin{mode: modeBuild})
	if err == nil || !strings.Contains(err.Error(), "broken.go:3") {
		t.Errorf("want the error of the compiler, got %v", err)
	}
	expectPrograms(t, bin, map[string]string{"kube-apiserver": "kube", "kubelets": "kubelets"})
}

// TestTheFirstCommandIsDoneBeforeCompiling runs a command that writes a source that the build needs.
func TestTheFirstCommandIsDoneBeforeCompiling(t *testing.T) {
	source, bin := newSource(t), t.TempDir()
	script := filepath.Join(source, "first.sh")
	write(t, script, "sleep 0.3; echo 'package main; func init() { print(\"first \") }' > "+filepath.Join(source, "cmd/kube/first.go"))
	for range 2 { // Beside programs that are up to date it runs, too.
		if _, err := provide(t, Newest(), source, bin, Origin{mode: modeBuild}, "bash", script); err != nil {
			t.Fatal(err)
		}
		expectPrograms(t, bin, map[string]string{"kube-apiserver": "first kube"})
	}
	if _, err := provide(t, Newest(), source, bin, Origin{mode: modeBuild}, "bash", "-c", "false"); err == nil || !strings.Contains(err.Error(), "running bash -c false") {
		t.Errorf("want the failure of the command, got %v", err)
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

// TestTheBuildSharesThePackagesOfTheManager shows that go.mod requires the versions of the manager's go.mod: packages of
// other versions would be compiled a second time, and all packages that import them.
func TestTheBuildSharesThePackagesOfTheManager(t *testing.T) {
	manager, ours := requirements(t, filepath.Join("..", "..", "..", "go.mod")), requirements(t, filepath.Join("..", "go.mod"))
	shared := 0
	for module, version := range manager {
		// Of staging modules of Kubernetes, replace has the version.
		switch got, ok := ours[module]; {
		case !ok || got == "v0.0.0":
		case got != version:
			t.Errorf("%s %s, and the manager has %s: run go get -C test/controlplane %s@%s", module, got, version, module, version)
		default:
			shared++
		}
	}
	if shared < 50 {
		t.Errorf("only %d modules are shared", shared)
	}
}

// requirements returns the modules that a go.mod requires, with their versions.
func requirements(t *testing.T, path string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	modules := map[string]string{}
	for _, match := range regexp.MustCompile(`(?m)^\s*(?:require )?([\w./~-]+\.[\w./~-]+) (v\S+)(?: // indirect)?$`).FindAllStringSubmatch(string(data), -1) {
		modules[match[1]] = match[2]
	}
	return modules
}
