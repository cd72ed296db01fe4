package dist

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
)

var date = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

func TestArchivesOfEqualFilesAreEqual(t *testing.T) {
	entries := []Entry{{Name: "kubectl-podops", Content: []byte("program"), Executable: true}, {Name: "LICENSE", Content: []byte("license")}}
	for name, list := range map[string]func(*testing.T, []byte) []string{"a.tar.gz": listTar, "a.zip": listZip} {
		first, err := Pack(name, entries, date)
		if err != nil {
			t.Fatal(err)
		}
		second, err := Pack(name, entries, date.In(time.FixedZone("east", 3600)))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first, second) {
			t.Errorf("%s: two archives differ", name)
		}
		want := []string{"-rwxr-xr-x kubectl-podops program", "-rw-r--r-- LICENSE license"}
		if diff := cmp.Diff(want, list(t, first)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if _, err := Pack("a.rar", entries, date); err == nil {
		t.Error("an unknown type is no error")
	}
}

func listTar(t *testing.T, packed []byte) []string {
	t.Helper()
	uncompressed, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	archive, found := tar.NewReader(uncompressed), []string(nil)
	for header, err := archive.Next(); err == nil; header, err = archive.Next() {
		content, _ := io.ReadAll(archive)
		found = append(found, header.FileInfo().Mode().String()+" "+header.Name+" "+string(content))
	}
	return found
}

func listZip(t *testing.T, packed []byte) []string {
	t.Helper()
	archive, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range archive.File {
		opened, err := file.Open()
		if err != nil {
			t.Fatal(err)
		}
		content, _ := io.ReadAll(opened)
		found = append(found, file.Mode().String()+" "+file.Name+" "+string(content))
	}
	return found
}

const template = `# A comment.
apiVersion: krew.googlecontainertools.github.com/v1alpha2
spec:
  version: VERSION
  platforms:
  - uri: https://example.com/VERSION/linux.tar.gz
    sha256: SHA256_LINUX_AMD64
  - uri: https://example.com/VERSION/windows.zip
    sha256: SHA256_WINDOWS_ARM64
`

func TestTheManifestForKrewHasEveryChecksum(t *testing.T) {
	got, err := Krew(template, "v0.1.0", map[string]string{"linux/amd64": "aa", "windows/arm64": "bb"})
	if err != nil {
		t.Fatal(err)
	}
	want := `apiVersion: krew.googlecontainertools.github.com/v1alpha2
spec:
  version: v0.1.0
  platforms:
  - uri: https://example.com/v0.1.0/linux.tar.gz
    sha256: aa
  - uri: https://example.com/v0.1.0/windows.zip
    sha256: bb
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for sentence, sums := range map[string]map[string]string{
		"SHA256_WINDOWS_ARM64": {"linux/amd64": "aa"},
		"SHA256_PLAN9_AMD64":   {"linux/amd64": "aa", "windows/arm64": "bb", "plan9/amd64": "cc"},
	} {
		if _, err := Krew(template, "v0.1.0", sums); err == nil || !strings.Contains(err.Error(), sentence) {
			t.Errorf("got %v, want an error that names %s", err, sentence)
		}
	}
}

// TestTheChartHasVersionAndImage packs the chart of the repository, so that it fails when make chart writes other lines.
func TestTheChartHasVersionAndImage(t *testing.T) {
	folder := os.DirFS(filepath.Join("..", "..", "..", "..", "charts", "podops"))
	entries, err := Chart(folder, "v0.1.0", "registry.example/podops-manager:v0.1.0@sha256:aa")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, entry := range entries {
		got[entry.Name] = string(entry.Content)
	}
	for name, lines := range map[string][]string{
		"podops/Chart.yaml":             {"name: podops", "version: 0.1.0", "appVersion: v0.1.0"},
		"podops/values.yaml":            {"image: registry.example/podops-manager:v0.1.0@sha256:aa"},
		"podops/values.schema.json":     {"{"},
		"podops/templates/_helpers.tpl": {`{{- define "podops.version" -}}`},
	} {
		for _, line := range lines {
			if !strings.Contains("\n"+got[name], "\n"+line+"\n") {
				t.Errorf("%s has no line %q", name, line)
			}
		}
	}
	if strings.Contains(got["podops/values.yaml"], "make image") {
		t.Error("values.yaml of a release states that there is no image")
	}
}

func TestAChartWithoutTheLinesOfMakeChartIsAnError(t *testing.T) {
	folder := fstest.MapFS{"Chart.yaml": {Data: []byte("name: podops\nversion: 1.0.0\nappVersion: dev\n")}}
	if _, err := Chart(folder, "v0.1.0", "image"); err == nil || !strings.Contains(err.Error(), `Chart.yaml does not have the line "version: 0.0.0" once`) {
		t.Errorf("got %v, want an error that names the line", err)
	}
}

// TestTheTemplateHasEveryPlatform fails when a platform is missing in the template of the repository.
func TestTheTemplateHasEveryPlatform(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "cmd", "kubectl-podops", "plugins", "podops.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]string{}
	for _, platform := range []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"} {
		sums[platform] = "sum-of-" + platform
	}
	got, err := Krew(string(content), "v0.1.0", sums)
	if err != nil {
		t.Fatal(err)
	}
	for _, sum := range sums {
		if !strings.Contains(got, "sha256: "+sum+"\n") {
			t.Errorf("no %s in\n%s", sum, got)
		}
	}
}

const changelog = `# Changelog

## Unreleased

- A change.

## v0.1.0 (2026-11-20)

### Added

- Everything.

## [v0.0.9]

- Less.
`

func TestTheChangelogHasASectionPerVersion(t *testing.T) {
	for version, want := range map[string]string{
		"v0.1.0": "## v0.1.0 (2026-11-20)\n\n### Added\n\n- Everything.\n", "v0.0.9": "## [v0.0.9]\n\n- Less.\n",
	} {
		got, err := Changelog(changelog, version, false)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", version, err, diff)
		}
	}
	if got, err := Changelog(changelog, "v0.2.0-rc.1", true); err != nil || got != "## Unreleased\n\n- A change.\n" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := Changelog(changelog, "v0.2.0", false); err == nil || !strings.Contains(err.Error(), "## v0.2.0") {
		t.Errorf("got %v, want an error that names the section", err)
	}
}

func TestTheIndexHasEveryFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "images"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{"install.yaml": "kind: List\n", "images/manager.tar": ""} {
		if err := os.WriteFile(filepath.Join(dir, path), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := WriteIndex(dir, Index{Version: "v0.1.0", Date: date}); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var index Index
	if err := json.Unmarshal(content, &index); err != nil {
		t.Fatal(err)
	}
	want := []File{
		{Path: "images/manager.tar", SHA256: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", Size: 0},
		{Path: "install.yaml", SHA256: Sum([]byte("kind: List\n")), Size: 11},
	}
	if diff := cmp.Diff(want, index.Files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	check := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = dir
	if out, err := check.CombinedOutput(); err != nil || strings.Count(string(out), ": OK") != 3 {
		t.Errorf("sha256sum: %v\n%s", err, out)
	}
}

func TestOnlyAReleaseIsReplaced(t *testing.T) {
	to := filepath.Join(t.TempDir(), "dist")
	made := func() string {
		dir := to + ".new"
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := WriteIndex(dir, Index{Version: "v0.1.0"}); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	for range 2 { // it is missing, and then a release
		if err := Replace(made(), to); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(to)); err != nil || len(left) != 1 {
		t.Errorf("beside the release are %v, %v", left, err)
	}
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "thesis"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Replace(made(), home); err == nil {
		t.Error("a folder with other files was replaced")
	}
	if _, err := os.Stat(filepath.Join(home, "thesis")); err != nil {
		t.Error(err)
	}
}
