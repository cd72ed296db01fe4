// Package build provides the programs of the control plane: the official programs of Kubernetes and etcd where
// their release sites can be reached, and otherwise programs that are built from their sources in the Go module
// cache: one multi-call binary for each version of Kubernetes (cmd/kube and oldest), and a link to it for each
// program. The simulated kubelets are always built.
package build

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/podops-dev/podops/test/controlplane/filelock"
	"github.com/podops-dev/podops/test/controlplane/progress"
)

const (
	kubeBinary     = "kube"
	kubeletsBinary = "kubelets"
	stampFile      = ".kube.stamp"
	lockFile       = ".kube.lock"

	// compilerGOGC is the GOGC of the compiler, which collects garbage for a quarter of its time
	// by default. A package takes half a gigabyte at most.
	compilerGOGC = "400"

	// compilerFlags are the same in the Makefile, so that its builds share packages with this one: nothing that only
	// debuggers read, which takes a fifth of the time.
	compilerFlags = "-gcflags=all=-dwarf=false"
)

// Target is the Kubernetes version to build, as its go.mod requires it, with the programs.
type Target struct {
	module  string   // folder of its Go module, relative to that of this one
	kube    string   // main package of the multi-call binary, in the module
	sources []string // patterns of the files in the module that it is built from
	bin     string   // folder of its programs, relative to the folder that Run gets

	official []string          // programs in the multi-call binary, which release sites have, too
	own      []string          // main packages of programs that no release site has
	links    map[string]string // programs of Newest, relative to bin
}

// Newest returns all programs of the version that everything is tested on. With its folder as
// KUBEBUILDER_ASSETS, controller-runtime's envtest finds its three among them.
func Newest() Target {
	// Without -trimpath, which would compile packages that no other build shares: the manager and
	// the tests of this module link the same packages.
	return Target{
		module: ".", kube: "./cmd/kube", sources: []string{"cmd/kube/*", "cmd/kubelets/*", "kubelet/*", "stages/*"}, bin: ".",
		official: []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"},
		own:      []string{"./cmd/" + kubeletsBinary},
	}
}

// Oldest returns the servers of the oldest version that PodOps supports, in the subfolder
// oldest. The other programs there are those of Newest.
func Oldest() Target {
	return Target{
		module: "oldest", kube: ".", sources: []string{"*.go"}, bin: "oldest",
		official: []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"},
		links:    map[string]string{"etcd": "../etcd", "kubectl": "../kubectl", kubeletsBinary: "../" + kubeletsBinary},
	}
}

// Run makes sure that the folder bin holds the programs of the target, from origin, with its own programs built
// from the module in the folder source, and reports progress on out. It does nothing when they are up to date.
// Concurrent calls are safe: the second waits for the first and then has nothing to do.
//
// first, unless it is empty, is a command that is run beside the downloads, and is done before Run compiles: two
// builds at once would compile the packages twice that they share.
func (t Target) Run(ctx context.Context, source, bin string, origin Origin, first []string, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := start(ctx, first, out)
	err := t.provide(ctx, source, bin, origin, done, out)
	if err != nil {
		cancel()
	}
	return errors.Join(err, done())
}

// start starts a command, and returns a function that waits for its end and returns its error, once.
func start(ctx context.Context, command []string, out io.Writer) (done func() error) {
	if len(command) == 0 {
		return func() error { return nil }
	}
	ended := make(chan error, 1)
	go func() {
		defer close(ended)
		cmd := exec.CommandContext(ctx, command[0], command[1:]...)
		cmd.Env, cmd.Stdout, cmd.Stderr = compilerEnv(), out, out
		if err := cmd.Run(); err != nil && ctx.Err() == nil {
			ended <- fmt.Errorf("running %s: %w", strings.Join(command, " "), err)
		}
	}()
	return func() error { return <-ended }
}

func (t Target) provide(ctx context.Context, source, bin string, origin Origin, compiled func() error, out io.Writer) error {
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
	if slices.ContainsFunc(origin.accepts(key), func(stamp string) bool { return t.upToDate(bin, stamp) }) {
		fmt.Fprintf(out, "the control plane in %s is up to date\n", bin)
		return nil
	}
	// A stamp never vouches for programs that are being replaced.
	if err := os.Remove(filepath.Join(bin, stampFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the stamp of the last build: %w", err)
	}
	fetched, err := t.fetch(ctx, source, bin, origin, out)
	if err != nil {
		return err
	}
	mains, stamp := t.own, fetchedStamp(key)
	if !fetched {
		mains, stamp = append([]string{t.kube}, t.own...), builtStamp(key)
	}
	if len(mains) > 0 {
		if err := t.compile(ctx, source, bin, mains, compiled, out); err != nil {
			return err
		}
	}
	if err := t.link(bin, fetched); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(bin, stampFile), []byte(stamp), 0o644); err != nil {
		return fmt.Errorf("writing the stamp of the build: %w", err)
	}
	return nil
}

// upToDate reports whether bin holds every program, with the given stamp.
func (t Target) upToDate(bin, stamp string) bool {
	built, err := os.ReadFile(filepath.Join(bin, stampFile))
	if err != nil || string(built) != stamp {
		return false
	}
	names := slices.Concat(t.official, slices.Collect(maps.Keys(t.links)))
	for _, main := range t.own {
		names = append(names, filepath.Base(main))
	}
	return !slices.ContainsFunc(names, func(name string) bool {
		_, err := os.Stat(filepath.Join(bin, name)) // follows the link
		return err != nil
	})
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
	fmt.Fprintf(hash, "%s\n%s\n%s", version, flags, compilerFlags)
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
	return fmt.Sprintf("%x", hash.Sum(nil)), nil
}

// compilerEnv returns the environment of go build.
func compilerEnv() []string {
	return append(os.Environ(), "GOGC="+cmp.Or(os.Getenv("GOGC"), compilerGOGC))
}

// compile builds main packages into bin once compiled has returned; the old binaries stay until the new
// binaries are complete, so that processes can still start them.
func (t Target) compile(ctx context.Context, source, bin string, mains []string, compiled func() error, out io.Writer) error {
	fmt.Fprintln(out, "fetching the sources of the control plane, unless they are in Go's module cache")
	if _, err := goOutput(ctx, source, append([]string{"list", "-deps"}, mains...)...); err != nil {
		return err
	}
	if err := compiled(); err != nil {
		return err
	}
	began := time.Now()
	flags, err := linkFlags(source)
	if err != nil {
		return err
	}
	buildFlags := []string{"-ldflags", flags, compilerFlags}
	work, err := t.staleWork(ctx, source, buildFlags, mains)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "building the control plane: %d packages\n", len(work.costs))

	building := filepath.Join(bin, ".build")
	if err := os.RemoveAll(building); err != nil {
		return fmt.Errorf("removing an incomplete build: %w", err)
	}
	defer os.RemoveAll(building)
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"build", "-v", "-o", building + "/"}, buildFlags, mains)...)
	cmd.Dir = source
	cmd.Env = compilerEnv()
	p := newReader(work)
	stop := progress.Show(out, p.line)
	cmd.Stderr = p
	err = cmd.Run()
	stop()
	if err != nil {
		return fmt.Errorf("building the control plane: %w\n%s", err, p.complaints())
	}
	for _, main := range mains {
		// go build names a program after the folder of its main package.
		name := filepath.Base(filepath.Join(source, main))
		built := filepath.Join(building, name)
		if main == t.kube {
			name = kubeBinary
		}
		if err := os.Rename(built, filepath.Join(bin, name)); err != nil {
			return fmt.Errorf("moving %s into place: %w", name, err)
		}
	}
	fmt.Fprintf(out, "built the control plane in %s\n", time.Since(began).Round(time.Second))
	return nil
}

// link creates a link for every program that is not a file of its own.
func (t Target) link(bin string, fetched bool) error {
	links := maps.Clone(t.links)
	if links == nil {
		links = map[string]string{}
	}
	if !fetched {
		for _, name := range t.official {
			links[name] = kubeBinary
		}
	}
	for name, target := range links {
		path := filepath.Join(bin, name)
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("replacing %s: %w", name, err)
		}
		if err := os.Symlink(target, path); err != nil {
			return fmt.Errorf("linking %s: %w", name, err)
		}
	}
	return nil
}

var (
	kubernetesVersion = regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (v\d+\.\d+\.\d+)$`)
	etcdVersion       = regexp.MustCompile(`(?m)^\s*go\.etcd\.io/etcd/server/v3 (v\S+)$`)
)

// linkFlags returns flags that strip the binary and set its version, the version that
// go.mod requires: without it the programs report v0.0.0, which clients reject.
func linkFlags(source string) (string, error) {
	version, _, err := versions(source)
	if err != nil {
		return "", err
	}
	found := strings.Split(strings.TrimPrefix(version, "v"), ".")
	flags := []string{"-s", "-w"}
	// The first is the version that the programs report, the second the version in the user
	// agent of their requests.
	for _, variables := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags,
			fmt.Sprintf("-X %s.gitVersion=%s", variables, version),
			fmt.Sprintf("-X %s.gitMajor=%s", variables, found[0]),
			fmt.Sprintf("-X %s.gitMinor=%s", variables, found[1]),
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
