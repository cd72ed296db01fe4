package main

import (
	"bytes"
	"crypto/elliptic"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sigstore/sigstore/pkg/cryptoutils"

	"github.com/podops-dev/podops/hack/release/internal/dist"
)

// runRelease runs the command, and returns its exit code and what it complains about.
func runRelease(arguments ...string) (code int, complaint string) {
	var out, complaints bytes.Buffer
	code = run(arguments, &out, &complaints)
	return code, complaints.String()
}

func TestWrongArgumentsAreErrors(t *testing.T) {
	for sentence, test := range map[string]struct {
		arguments []string
		code      int
		want      string
	}{
		"no command":         {nil, 2, "release all"},
		"an unknown flag":    {[]string{"all", "-fast"}, 2, "-fast"},
		"an unknown command": {[]string{"deploy"}, 1, "wrong arguments"},
		"no version":         {[]string{"all"}, 1, "VERSION is required"},
		"no semver":          {[]string{"all", "-version", "0.1"}, 1, `VERSION "0.1" is no version of semver`},
		"no semver, images":  {[]string{"image", "-version", "latest"}, 1, `VERSION "latest" is no version of semver`},
		"no platform":        {[]string{"image", "-platforms", "linux"}, 1, `platform "linux"`},
		"no archive":         {[]string{"push"}, 1, "wrong arguments"},
	} {
		t.Run(sentence, func(t *testing.T) {
			if code, complaint := runRelease(test.arguments...); code != test.code || !strings.Contains(complaint, test.want) {
				t.Errorf("exit code %d, want %d; got %q, want %q", code, test.code, complaint, test.want)
			}
		})
	}
}

func TestAChangedTreeIsNoRelease(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	for _, arguments := range [][]string{
		{"init", "-q"}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "--allow-empty", "-m", "one"},
	} {
		if out, err := exec.Command("git", append([]string{"-C", dir}, arguments...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", arguments, err, out)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "changed"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "dist")
	code, complaint := runRelease("all", "-root", dir, "-version", "v0.1.0", "-out", out)
	if code != 1 || !strings.Contains(complaint, "?? changed") || !strings.Contains(complaint, "ALLOW_DIRTY=1") {
		t.Errorf("exit code %d: %s", code, complaint)
	}
	// The next check of a release is its section of the changelog.
	code, complaint = runRelease("all", "-root", dir, "-version", "v0.1.0", "-out", out, "-allow-dirty")
	if code != 1 || !strings.Contains(complaint, "CHANGELOG.md") {
		t.Errorf("exit code %d: %s", code, complaint)
	}
	if entries, err := os.ReadDir(filepath.Dir(out)); err != nil || len(entries) != 0 {
		t.Errorf("an incomplete release is left behind: %v, %v", entries, err)
	}
}

// TestSign signs a release in a folder, and shows that changed files and missing keys are errors.
func TestSign(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "install.yaml")
	if err := os.WriteFile(file, []byte("kind: Namespace\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	index := dist.Index{Version: "v0.1.0", Commit: strings.Repeat("0123456789", 4), GoVersion: "go1.26.8"}
	if err := dist.WriteIndex(dir, index); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "key")
	private, _, err := cryptoutils.GeneratePEMEncodedECDSAKeyPair(elliptic.P256(), cryptoutils.StaticPasswordFunc([]byte("secret")))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, private, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, complaint := runRelease("sign", "-out", dir); code != 1 || !strings.Contains(complaint, "-key is missing") {
		t.Errorf("without a key: exit code %d: %s", code, complaint)
	}
	if code, complaint := runRelease("sign", "-out", dir, "-key", key); code != 1 || !strings.Contains(complaint, "PODOPS_KEY_PASSWORD") {
		t.Errorf("without a password: exit code %d: %s", code, complaint)
	}
	t.Setenv("PODOPS_KEY_PASSWORD", "secret")
	for range 2 { // The provenance is no part of what is signed.
		if code, complaint := runRelease("sign", "-out", dir, "-key", key); code != 0 {
			t.Fatalf("exit code %d: %s", code, complaint)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, provenanceName)); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(file, []byte("kind: Secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, complaint := runRelease("sign", "-out", dir, "-key", key); code != 1 || !strings.Contains(complaint, "install.yaml differs from index.json") {
		t.Errorf("of a changed file: exit code %d: %s", code, complaint)
	}
}
