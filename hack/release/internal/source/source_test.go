package source

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAVersionIsCanonicalSemver(t *testing.T) {
	for version, valid := range map[string]bool{
		"v0.1.0": true, "v1.20.3": true, "v0.2.0-rc.1": true, "v0.0.1-test": true,
		"": false, "0.1.0": false, "v1": false, "v1.2": false, "v01.2.3": false, "latest": false, "v1.2.3+linux": false, "v1.2.3-": false,
		"v1.2.3-a b": false, "v1.2.3\n": false, "v0.1.0-" + strings.Repeat("a", maxVersion): false,
	} {
		err := CheckVersion(version)
		if (err == nil) != valid {
			t.Errorf("%q: got %v, want valid %t", version, err, valid)
		}
		if err != nil && !strings.Contains(err.Error(), "VERSION") {
			t.Errorf("%q: the error does not name VERSION: %v", version, err)
		}
	}
}

func TestReadDescribesTheCommit(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	t.Setenv("GIT_COMMITTER_DATE", "2026-11-20T12:00:00+02:00")
	write(t, dir, "file", "one")
	for _, arguments := range [][]string{
		{"init", "-q"}, {"add", "file"}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", "one"},
	} {
		if _, err := git(t.Context(), dir, arguments...); err != nil {
			t.Fatal(err)
		}
	}
	clean, err := Read(t.Context(), dir, "v0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	if clean.Version != "v0.1.0" || len(clean.Commit) != 40 || clean.CheckClean() != nil || clean.Date.Format("15:04 MST") != "10:00 UTC" {
		t.Errorf("got %+v, %v", clean, clean.CheckClean())
	}

	write(t, dir, "other", "two")
	dirty, err := Read(t.Context(), filepath.Join(dir, "."), "")
	if err != nil {
		t.Fatal(err)
	}
	if want := "v0.0.0-20261120100000-" + clean.Commit[:12] + "-dirty"; dirty.Version != want || CheckVersion(dirty.Version) != nil {
		t.Errorf("version %q, want %q: %v", dirty.Version, want, CheckVersion(dirty.Version))
	}
	if dirty.Commit != clean.Commit+"-dirty" {
		t.Errorf("commit %q", dirty.Commit)
	}
	if err := dirty.CheckClean(); !errors.Is(err, ErrDirty) || !strings.Contains(err.Error(), "?? other") {
		t.Errorf("got %v, want an error that names the file", err)
	}
}

func TestReadRequiresAClone(t *testing.T) {
	if _, err := Read(t.Context(), t.TempDir(), ""); err == nil || !strings.Contains(err.Error(), "clone") {
		t.Errorf("got %v", err)
	}
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
