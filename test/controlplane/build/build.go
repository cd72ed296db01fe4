// Package build builds the programs of the control plane from their sources in the Go
// module cache: one multi-call binary for each version of Kubernetes (cmd/kube and oldest), and
// a link to it for each program.
package build

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/podops-dev/podops/test/controlplane/filelock"
)

const (
	binaryFile = "kube"
	stampFile  = ".kube.stamp"
	lockFile   = ".kube.lock"

	// compilerGOGC is the GOGC of the compiler, which collects garbage for a quarter of its time
	// by default. A package takes half a gigabyte at most.
	compilerGOGC = "400"
)

// Target is a multi-call binary with the programs of one version of Kubernetes, that of its go.mod.
type Target struct {
	module  string   // folder of its Go module, relative to that of this one
	main    string   // its main package, in the module
	sources []string // patterns of the files in the module that it is built from
	bin     string   // folder of its programs, relative to the folder that Run gets

	// programs are links by their names: to the binary, or to that of Newest.
	programs map[string]string

	flags   []string // of go build
	minutes int      // of processor time that a first build takes
}

// Newest returns all programs of the version that everything is tested on. With its folder as
// KUBEBUILDER_ASSETS, controller-runtime's envtest finds its three among them.
func Newest() Target {
	programs := map[string]string{}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok", "kubelets"} {
		programs[name] = binaryFile
	}
	// Without -trimpath, which would compile packages that no other build shares: the tests
	// of this module link the same packages.
	return Target{
		module: ".", main: "./cmd/kube", sources: []string{"cmd/kube/*", "kubelet/*", "stages/*"}, bin: ".", programs: programs, minutes: 20,
	}
}

// Oldest returns the servers of the oldest version that PodOps supports, in the subfolder
// oldest. The other programs there are those of Newest.
func Oldest() Target {
	newest := filepath.Join("..", binaryFile)
	return Target{
		module: "oldest", main: ".", sources: []string{"*.go"}, bin: "oldest", minutes: 10,
		programs: map[string]string{
			"kube-apiserver": binaryFile, "kube-controller-manager": binaryFile, "kube-scheduler": binaryFile,
			"etcd": newest, "kubectl": newest, "kubelets": newest,
		},
		// No other build shares the packages of this version, and no debugger reads them.
		flags: []string{"-gcflags=k8s.io/...=-dwarf=false"},
	}
}

// Run makes sure that the folder bin holds the programs of the target, built from the module in
// the folder source, and reports progress on out. It does nothing when they are up to date.
// Concurrent calls are safe: the second waits for the first and then has nothing to do.
func (t Target) Run(ctx context.Context, source, bin string, out io.Writer) error {
	source, bin = filepath.Join(source, t.module), filepath.Join(bin, t.bin)
	bin, err := filepath.Abs(bin)
	if err != nil {
		return fmt.Errorf("resolving %s: %w", bin, err)
	}
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return fmt.Errorf("making the folder of the programs: %w", err)
	}
	key, err := t.stamp(ctx, source)
	if err != nil {
		return err
	}
	unlock, err := filelock.Lock(ctx, filepath.Join(bin, lockFile), func() {
		fmt.Fprintln(out, "waiting for another build of the control plane")
	})
	if err != nil {
		return err
	}
	defer unlock()
	if t.upToDate(bin, key) {
		fmt.Fprintf(out, "the control plane in %s is up to date\n", bin)
		return nil
	}
	if err := t.compile(ctx, source, filepath.Join(bin, binaryFile), out); err != nil {
		return err
	}
	if err := t.link(bin); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(bin, stampFile), []byte(key), 0o644); err != nil {
		return fmt.Errorf("writing the stamp of the build: %w", err)
	}
	return nil
}

// upToDate reports whether bin holds every program, built for key.
func (t Target) upToDate(bin, key string) bool {
	built, err := os.ReadFile(filepath.Join(bin, stampFile))
	if err != nil || string(built) != key {
		return false
	}
	for name := range t.programs {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil { // follows the link
			return false
		}
	}
	return true
}

// stamp returns the identity of a build in the folder source: a hash of the sources, the
// pinned dependencies, the settings and the Go version.
func (t Target) stamp(ctx context.Context, source string) (string, error) {
	version, err := goOutput(ctx, source, "env", "GOVERSION", "GOOS", "GOARCH", "CGO_ENABLED")
	if err != nil {
		return "", err
	}
	flags, err := linkFlags(source)
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%s\n%s\n%s", version, flags, strings.Join(t.flags, " "))
	files := []string{"go.mod", "go.sum"}
	for _, pattern := range t.sources {
		found, err := fs.Glob(os.DirFS(source), pattern)
		if err != nil {
			return "", fmt.Errorf("listing the sources: %w", err)
		}
		files = append(files, found...) // sorted by Glob
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || (filepath.Ext(name) != ".go" && filepath.Ext(name) != ".yaml" && strings.Contains(name, "/")) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", fmt.Errorf("reading the sources: %w", err)
		}
		fmt.Fprintf(hash, "%s %x\n", name, sha256.Sum256(data))
	}
	return fmt.Sprintf("%x\n", hash.Sum(nil)), nil
}

// compile builds the binary at path; the old binary stays until the new binary is
// complete, so that processes can still start it.
func (t Target) compile(ctx context.Context, source, path string, out io.Writer) error {
	began := time.Now()
	fmt.Fprintln(out, "fetching the sources of the control plane, unless they are in Go's module cache")
	packages, err := goOutput(ctx, source, "list", "-deps", t.main)
	if err != nil {
		return err
	}
	flags, err := linkFlags(source)
	if err != nil {
		return err
	}
	total := strings.Count(packages, "\n") + 1
	fmt.Fprintf(out, "building the control plane, %d packages; "+
		"with nothing in Go's build cache this takes about %d minutes of CPU\n", total, t.minutes)

	args := append([]string{"build", "-v", "-ldflags", flags, "-o", path + ".new"}, t.flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, t.main)...)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "GOGC="+cmp.Or(os.Getenv("GOGC"), compilerGOGC))
	p := newProgress(out, total)
	cmd.Stderr = p
	err = cmd.Run()
	p.close()
	if err != nil {
		return fmt.Errorf("building the control plane: %w\n%s", err, p.complaints())
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("moving the binary into place: %w", err)
	}
	fmt.Fprintf(out, "built %s in %s\n", path, time.Since(began).Round(time.Second))
	return nil
}

// link creates a link to the binary for every program.
func (t Target) link(bin string) error {
	for name, binary := range t.programs {
		path := filepath.Join(bin, name)
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("replacing %s: %w", name, err)
		}
		if err := os.Symlink(binary, path); err != nil {
			return fmt.Errorf("linking %s: %w", name, err)
		}
	}
	return nil
}

var kubernetesVersion = regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes v(\d+)\.(\d+)\.(\d+)$`)

// linkFlags returns flags that strip the binary and set its version, the version that
// go.mod requires: without it the programs report v0.0.0, which clients reject.
func linkFlags(source string) (string, error) {
	data, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("reading the version of Kubernetes: %w", err)
	}
	found := kubernetesVersion.FindStringSubmatch(string(data))
	if found == nil {
		return "", fmt.Errorf("%s/go.mod requires no k8s.io/kubernetes", source)
	}
	flags := []string{"-s", "-w"}
	// The first is the version that the programs report, the second the version in the user
	// agent of their requests.
	for _, variables := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags,
			fmt.Sprintf("-X %s.gitVersion=v%s.%s.%s", variables, found[1], found[2], found[3]),
			fmt.Sprintf("-X %s.gitMajor=%s", variables, found[1]),
			fmt.Sprintf("-X %s.gitMinor=%s", variables, found[2]),
			fmt.Sprintf("-X %s.gitTreeState=clean", variables))
	}
	return strings.Join(flags, " "), nil
}

// goOutput runs the go command in folder and returns its trimmed output.
func goOutput(ctx context.Context, folder string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = folder
	var complaint strings.Builder
	cmd.Stderr = &complaint
	output, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("running go %s: %w\n%s", args[0], err, complaint.String())
	}
	return strings.TrimSpace(string(output)), nil
}
