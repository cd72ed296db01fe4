package docpage_test

import (
	"os"
	"path/filepath"
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

func TestReadFailsWithoutCommands(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(path, []byte("Text. `rule.yaml`:\n\n```yaml\nname: web\n```\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, one := range []string{path, path + ".absent"} {
		if steps, err := docpage.Read(one); err == nil {
			t.Errorf("%s has the steps %v", one, steps)
		}
	}
}
