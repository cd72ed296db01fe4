// Package build builds programs so that equal sources give equal binaries, wherever and whenever they are built.
package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// compilerGOGC is the GOGC of the compiler, which collects garbage for a quarter of its time by default.
const compilerGOGC = "400"

// Platform is an operating system and an architecture.
type Platform struct {
	OS, Arch string
}

// String returns the platform as in linux/amd64.
func (p Platform) String() string { return p.OS + "/" + p.Arch }

// ParsePlatforms parses platforms that are separated by commas.
func ParsePlatforms(list string) ([]Platform, error) {
	var platforms []Platform
	for word := range strings.SplitSeq(list, ",") {
		system, arch, ok := strings.Cut(word, "/")
		if !ok || system == "" || arch == "" {
			return nil, fmt.Errorf("platform %q, want one as linux/amd64", word)
		}
		platforms = append(platforms, Platform{OS: system, Arch: arch})
	}
	return platforms, nil
}

// Program is a program of a release.
type Program struct {
	// Name is the name of the binary.
	Name string

	// Module is the folder of its Go module, below the root of the repository, and Package the folder
	// of the program below that.
	Module, Package string
}

// Builder builds programs.
type Builder struct {
	// Root is the root of the repository.
	Root string

	// Out is the folder of the binaries. Programs in it that are up to date are not linked again.
	Out string

	// Variables are set by the linker: values by the names of string variables, with their packages.
	Variables map[string]string
}

// Build builds a program for a platform, and returns the path of the binary.
func (b Builder) Build(ctx context.Context, program Program, platform Platform) (string, error) {
	path := filepath.Join(b.Out, platform.OS+"_"+platform.Arch, program.Name)
	if platform.OS == "windows" {
		path += ".exe"
	}
	flags, err := b.linkerFlags()
	if err != nil {
		return "", err
	}
	// -trimpath removes the folder of the clone and of the module cache. Version control is not read by the
	// toolchain, which counts files that git does not know as changes: the linker sets the commit instead.
	command := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join(b.Root, program.Module),
		"-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", path, "./"+program.Package)
	command.Env = append(append(os.Environ(), "GOGC="+compilerGOGC), environment(platform)...)
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s for %s: %w\n%s", program.Name, platform, err, out)
	}
	return path, b.checkVariables(path)
}

// checkVariables returns an error for a variable whose value is not in a binary: the linker ignores variables that do not exist.
func (b Builder) checkVariables(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading a program: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(b.Variables)) {
		if !bytes.Contains(content, []byte(b.Variables[name])) {
			return fmt.Errorf("%w: %s is not in %s", errNoVariable, name, path)
		}
	}
	return nil
}

var errNoVariable = errors.New("the program has no such variable")

// environment returns the variables that change binaries: those of the caller do not count.
func environment(platform Platform) []string {
	return []string{
		"GOOS=" + platform.OS, "GOARCH=" + platform.Arch, "CGO_ENABLED=0", // static
		"GOFLAGS=-mod=readonly", "GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off",
	}
}

// linkerFlags omits symbols that only debuggers read: a third of the size.
func (b Builder) linkerFlags() (string, error) {
	flags := []string{"-s", "-w"}
	for _, name := range slices.Sorted(maps.Keys(b.Variables)) {
		value := b.Variables[name]
		if strings.ContainsAny(value, " '\"\n") {
			return "", fmt.Errorf("value %q of %s: %w", value, name, errUnquotable)
		}
		flags = append(flags, "-X", name+"="+value)
	}
	return strings.Join(flags, " "), nil
}

var errUnquotable = errors.New("the linker accepts neither spaces nor quotes")
