package build_test

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/hack/release/internal/build"
)

// printing imports nothing, so that few packages of the standard library are compiled.
const printing = `package main

var version string

func main() { println("version", version) }
`

// buildProgram writes a program into a new folder, builds it, and returns the path of the binary.
func buildProgram(t *testing.T, program, version string) string {
	t.Helper()
	path, err := tryBuild(t, program, map[string]string{"main.version": version})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// tryBuild builds a program with variables.
func tryBuild(t *testing.T, program string, variables map[string]string) (path string, err error) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"go.mod": "module example.com/program\n\ngo 1.26.0\n", "main.go": program} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	builder := build.Builder{Root: dir, Out: filepath.Join(dir, "bin"), Variables: variables}
	return builder.Build(t.Context(), build.Program{Name: "program", Module: ".", Package: "."}, build.Platform{OS: "linux", Arch: runtime.GOARCH})
}

// TestBuildsInTwoFoldersAreEqual compares two builds without the results of earlier builds.
func TestBuildsInTwoFoldersAreEqual(t *testing.T) {
	t.Setenv("GOCACHE", t.TempDir())
	first := buildProgram(t, printing, "v0.1.0")
	// Settings of the caller do not count.
	t.Setenv("GOCACHE", t.TempDir())
	t.Setenv("GOFLAGS", "-buildvcs=true")
	t.Setenv("GOAMD64", "v3")
	t.Setenv("CGO_ENABLED", "1")
	second := buildProgram(t, printing, "v0.1.0")
	if !bytes.Equal(read(t, first), read(t, second)) {
		t.Error("two builds of equal sources differ")
	}
	if out, err := exec.Command(first).CombinedOutput(); err != nil || string(out) != "version v0.1.0\n" {
		t.Errorf("got %q, %v", out, err)
	}
	if other := buildProgram(t, printing, "v0.2.0"); bytes.Equal(read(t, first), read(t, other)) {
		t.Error("a version changes nothing")
	}
}

// TestAProgramIsStatic builds a program that is linked dynamically with cgo.
func TestAProgramIsStatic(t *testing.T) {
	t.Setenv("CGO_ENABLED", "1")
	opened, err := elf.Open(buildProgram(t, strings.Replace(printing, "\n\n", "\n\nimport _ \"os/user\"\n\n", 1), "v0.1.0"))
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	for _, part := range opened.Progs {
		if part.Type == elf.PT_INTERP || part.Type == elf.PT_DYNAMIC {
			t.Errorf("the program is linked dynamically: %v", part.Type)
		}
	}
}

// TestAVariableMustExist shows that a variable in a package that was moved ends the build, which the linker does not.
func TestAVariableMustExist(t *testing.T) {
	_, err := tryBuild(t, printing, map[string]string{"example.com/program/moved.commit": "9f3ab20c51d7"})
	if err == nil || !strings.Contains(err.Error(), "example.com/program/moved.commit") {
		t.Errorf("got %v", err)
	}
}

func TestAValueThatTheLinkerCannotReadIsAnError(t *testing.T) {
	builder := build.Builder{Root: ".", Out: t.TempDir(), Variables: map[string]string{"main.version": "a b"}}
	if _, err := builder.Build(t.Context(), build.Program{Name: "program"}, build.Platform{OS: "linux", Arch: "amd64"}); err == nil {
		t.Error("got no error")
	}
}

func TestParsePlatforms(t *testing.T) {
	got, err := build.ParsePlatforms("linux/amd64,darwin/arm64")
	if diff := cmp.Diff([]build.Platform{{OS: "linux", Arch: "amd64"}, {OS: "darwin", Arch: "arm64"}}, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	for _, list := range []string{"linux", "linux/", "/amd64", "linux/amd64,"} {
		if _, err := build.ParsePlatforms(list); err == nil {
			t.Errorf("%q: got no error", list)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
