package docpage_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/test/docpage"
)

func TestRead(t *testing.T) {
	const page = "# Title\n\nSome text. `rule.yaml`:\n\n```yaml\nname: web\n```\n\nA part of it:\n\n```yaml\nname\n```\n\n" +
		"```\n$ podops verify rule.yaml\nobjects: 1\n  note\n\n$ podops test .\nPASS\n```\n\nThen:\n\n```sh\nkubectl apply \\\n  -f rule.yaml\n```\n"
	path := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := docpage.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []docpage.Step{
		{File: "rule.yaml", Text: "name: web\n"},
		{Command: "podops verify rule.yaml", Output: "objects: 1\n  note\n"},
		{Command: "podops test .", Output: "PASS\n"},
		{Shell: "kubectl apply \\\n  -f rule.yaml\n"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

func TestReadFailsWithoutAPage(t *testing.T) {
	if steps, err := docpage.Read(filepath.Join(t.TempDir(), "page.md")); err == nil {
		t.Errorf("a missing page has the steps %v", steps)
	}
}

func TestCommands(t *testing.T) {
	const page = "Text.\n\n```sh\n# a comment\nkubectl get pods    # and another\nkubectl get pods -o json |\n  jq '.a |\n  .b'\nmake \\\n  run\n```\n\n" +
		"```\n$ podops test .\nPASS\n```\n\n1. In a list:\n\n   ```console\n   $ podops get\n   no $ prompt\n   ```\n\n```yaml\nname: web\n```\n"
	path := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := docpage.Commands(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"kubectl get pods", "kubectl get pods -o json | jq '.a | .b'", "make run", "podops test .", "podops get"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
	if _, err := docpage.Commands(path + ".missing"); err == nil {
		t.Error("a missing page gives no error")
	}
}

func TestPagesNameTargetsOfMake(t *testing.T) {
	root := filepath.Join("..", "..")
	pages := []string{"README.md", "CONTRIBUTING.md"}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md", "examples/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range found {
			pages = append(pages, strings.TrimPrefix(page, root))
		}
	}
	targets := map[string]string{}
	for _, page := range pages {
		commands, err := docpage.Commands(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range commands {
			if arguments, isMake := strings.CutPrefix(command, "make "); isMake {
				targets[arguments] = page
			}
		}
	}
	if len(targets) < 30 {
		t.Fatalf("the pages have %d commands of make", len(targets))
	}
	for arguments, page := range targets {
		plan := exec.CommandContext(t.Context(), "sh", "-c", "make --dry-run "+arguments)
		plan.Dir = root
		plan.Env = append(os.Environ(), "MAKEFLAGS=")
		if output, err := plan.CombinedOutput(); err != nil {
			t.Errorf("%s: make %s: %v\n%s", page, arguments, err, output)
		}
	}
}
