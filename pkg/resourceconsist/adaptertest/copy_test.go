package adaptertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestACopyOfTheTemplateBuildsAndPasses follows the walk-through of docs/resourceconsist.md,
// in a folder outside of this module.
func TestACopyOfTheTemplateBuildsAndPasses(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	module := filepath.Join(t.TempDir(), "my-adapter")
	if err := os.CopyFS(module, os.DirFS("template")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(module, "go.mod.txt"), filepath.Join(module, "go.mod")); err != nil {
		t.Fatal(err)
	}
	// The checksums of this module, in place of go mod tidy, which would download the tests of dependencies.
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(module, "go.sum"), sums, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, arguments := range [][]string{
		{"mod", "edit", "-replace", "github.com/podops-dev/podops=" + root},
		{"build", "-mod=mod", "-o", "adapter", "."},
		{"test", "-mod=mod", "-vet=off", "-v", "-count=1", "."},
	} {
		command := exec.Command("go", arguments...)
		command.Dir, command.Env = module, append(os.Environ(), "GOWORK=off")
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(arguments, " "), err, out)
		}
		if arguments[0] == "test" && strings.Count(string(out), "--- PASS: TestConformance/") < 38 {
			t.Errorf("the suite has run fewer than 38 cases:\n%s", out)
		}
	}
	help := exec.Command(filepath.Join(module, "adapter"), "--help")
	if out, _ := help.CombinedOutput(); !strings.Contains(string(out), "-namespace") {
		t.Errorf("the program prints no flags:\n%s", out)
	}
}
