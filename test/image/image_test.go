// Package image_test runs the images of a release in containers: the manager serves a rollout of the demo, installed
// from install.yaml with the rights of its ServiceAccount.
package image_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/podops-dev/podops/test/managerprocess"
)

// patience bounds each wait: the demo takes a minute.
const patience = 5 * time.Minute

// image is an image in index.json.
type image struct {
	Name, Digest, File string
}

// setting is a release and the programs that the test needs.
type setting struct {
	root, bin, dist, dir string
	images               map[string]image // by the names of their programs
	podman               []string         // the command; empty: images are unpacked
}

func TestImagesRunAsTheManifestsRunThem(t *testing.T) {
	s := newSetting(t)
	s.prepare(t)
	for program := range s.images {
		t.Run(program+" has the version of the release", func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), s.script(t, program, s.dir), "version").CombinedOutput()
			if words := strings.Fields(string(out)); err != nil || len(words) < 2 || words[0] != program || words[1] != s.version(t) {
				t.Errorf("got %q, %v; want %s %s", out, err, program, s.version(t))
			}
		})
	}

	play := s.startDemo(t)
	if err := play.await(t.Context(), "Everything runs until Ctrl-C"); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(play.output(), "It held: 12 of 12 rolled") {
		t.Errorf("the demo has no result:\n%s", play.output())
	}
	t.Run("the manager is restricted", func(t *testing.T) { checkRestricted(t, "/manager", play.dir) })
	t.Run("the version is visible in the cluster", func(t *testing.T) { s.checkVisible(t, play) })
	t.Run("the version is a metric", func(t *testing.T) { s.checkMetric(t, play) })
	t.Run("kvstore-operator is ready and restricted", func(t *testing.T) { s.startKVStoreOperator(t, play) })
	t.Run("slb-manager is ready and restricted", func(t *testing.T) { s.startSLBManager(t, play) })
	if err := play.end(); err != nil {
		t.Error(err)
	}
}

func newSetting(t *testing.T) *setting {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("containers of another user need root: run this as root (docs/releasing.md)")
	}
	bin, err := filepath.Abs(os.Getenv("PODOPS_BIN"))
	if err != nil || os.Getenv("PODOPS_BIN") == "" {
		t.Fatalf("PODOPS_BIN must name the folder of the programs: run make test-image: %v", err)
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	s := &setting{root: root, bin: bin, dist: os.Getenv("PODOPS_DIST"), dir: filepath.Join(bin, "image-test"), podman: strings.Fields(os.Getenv("PODMAN"))}
	var index struct{ Images []image }
	content, err := os.ReadFile(filepath.Join(s.dist, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &index); err != nil {
		t.Fatal(err)
	}
	s.images = map[string]image{}
	for _, i := range index.Images {
		s.images[strings.TrimPrefix(strings.TrimSuffix(filepath.Base(i.File), ".tar"), "podops-")] = i
	}
	if len(s.images) != 3 {
		t.Fatalf("the release has the images %v, want 3", s.images)
	}
	if err := errors.Join(os.RemoveAll(s.dir), os.MkdirAll(s.dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	return s
}

// version returns the tag of the images.
func (s *setting) version(t *testing.T) string {
	t.Helper()
	_, tag, _ := strings.Cut(filepath.Base(s.images["manager"].Name), ":")
	return tag
}

// prepare loads the images into podman, or unpacks them.
func (s *setting) prepare(t *testing.T) {
	t.Helper()
	if len(s.podman) > 0 {
		err := s.load(t)
		if err == nil {
			return
		}
		t.Logf("podman runs no container here: %v", err)
	}
	t.Log("images are unpacked, and run in a chroot")
	s.podman = nil
	for program, i := range s.images {
		run(t, filepath.Join(s.bin, "tools", "release"), "unpack", filepath.Join(s.dist, i.File), s.unpacked(program))
	}
}

// load loads the images into podman, and runs a container. An error is that of podman.
func (s *setting) load(t *testing.T) error {
	t.Helper()
	for _, i := range s.images {
		arguments := []string{"load", "--quiet", "--input", filepath.Join(s.dist, i.File)}
		out, err := exec.Command(s.podman[0], slices.Concat(s.podman[1:], arguments)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("loading %s: %w\n%s", i.Name, err, out)
		}
		if !strings.Contains(string(out), i.Name) {
			t.Errorf("podman loaded %q, want %s", out, i.Name)
		}
	}
	t.Cleanup(func() { // the storage shares nothing between images: each run would add 200 MiB
		run(t, s.podman[0], slices.Concat(s.podman[1:], []string{"rm", "--all", "--force"})...)
		run(t, s.podman[0], slices.Concat(s.podman[1:], []string{"rmi", "--all", "--force"})...)
	})
	if out, err := exec.Command(s.script(t, "manager", s.dir), "version").CombinedOutput(); err != nil {
		return fmt.Errorf("running a container: %w\n%s", err, out)
	}
	return nil
}

func (s *setting) unpacked(program string) string { return filepath.Join(s.dir, "unpacked", program) }

// script writes a program that runs an image with a folder, and returns its path.
func (s *setting) script(t *testing.T, program, folder string) string {
	t.Helper()
	words := []string{"unpacked", s.unpacked(program)}
	if len(s.podman) > 0 {
		words = []string{"podman", s.images[program].Name}
	}
	path := filepath.Join(s.dir, program+"-in-container")
	text := fmt.Sprintf("#!/bin/sh\nexec '%s' '%s' '%s' '%s' \"$@\"\n", filepath.Join(s.root, "test", "image", "container"), words[0], words[1], folder)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// writeOverlay writes a kustomization of install.yaml for a manager that runs outside of the cluster, as config/local is
// one of config/default, and returns its folder.
func (s *setting) writeOverlay(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(s.dir, "manifests")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	local := filepath.Join(s.root, "config", "local")
	for from, to := range map[string]string{
		filepath.Join(s.dist, "install.yaml"): "install.yaml", filepath.Join(local, "mutating_patch.yaml"): "mutating_patch.yaml",
		filepath.Join(local, "validating_patch.yaml"): "validating_patch.yaml",
	} {
		content, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), content, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	adapters, err := filepath.Rel(dir, filepath.Join(s.root, "config", "components", "adapters"))
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [install.yaml]
components: [%s]
replicas: [{name: podops-controller-manager, count: 0}]
patches: [{path: mutating_patch.yaml}, {path: validating_patch.yaml}]
`, adapters)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// demo is a demo that keeps running.
type demo struct {
	dir     string
	metrics string // address of the metrics of the manager
	command *exec.Cmd
	log     string
	ended   chan error
}

// startDemo starts the demo with the image of the manager.
func (s *setting) startDemo(t *testing.T) *demo {
	t.Helper()
	d := &demo{dir: filepath.Join(s.dir, "demo"), log: filepath.Join(s.dir, "demo.log"), ended: make(chan error, 1)}
	metrics, err := managerprocess.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	d.metrics = metrics
	log, err := os.Create(d.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	d.command = exec.Command(filepath.Join(s.bin, "demo"), "-bin", s.bin, "-dir", d.dir, "-keep", "-metrics", metrics,
		"-manifests", s.writeOverlay(t), "-manager", s.script(t, "manager", d.dir))
	d.command.Dir, d.command.Stdout, d.command.Stderr = s.root, log, log
	d.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := d.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { d.ended <- d.command.Wait() }()
	t.Cleanup(func() {
		_ = d.end() // it has ended unless the test failed
	})
	return d
}

// output returns what the demo has printed.
func (d *demo) output() string {
	content, err := os.ReadFile(d.log)
	if err != nil {
		return err.Error()
	}
	return string(content)
}

// await waits for a line of the demo.
func (d *demo) await(ctx context.Context, line string) error {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for !strings.Contains(d.output(), line) {
		select {
		case err := <-d.ended:
			d.ended <- err
			return fmt.Errorf("the demo has ended: %w\n%s", err, d.output())
		case <-ctx.Done():
			return fmt.Errorf("the demo has not ended: %w\n%s", context.Cause(ctx), d.output())
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// end interrupts the demo, and returns an error if it has failed.
func (d *demo) end() error {
	_ = d.command.Process.Signal(os.Interrupt) // it may have ended already
	err := <-d.ended
	d.ended <- err
	if err != nil {
		return fmt.Errorf("the demo failed: %w\n%s", err, d.output())
	}
	return nil
}

// checkVisible checks what kubectl get deployments prints.
func (s *setting) checkVisible(t *testing.T, d *demo) {
	out := s.kubectl(t, d, "get", "deployments", "-n", "podops-system", "-o", "wide", "-L", "app.kubernetes.io/version")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	words := strings.Fields(lines[len(lines)-1])
	manager := s.images["manager"]
	if len(lines) != 2 || !slices.Contains(words, manager.Name+"@"+manager.Digest) || words[len(words)-1] != s.version(t) {
		t.Errorf("want the image %s by digest and the version as the last column, got:\n%s", manager.Name, out)
	}
}

// checkMetric reads the metrics of the manager as a client that is bound to the role for it.
func (s *setting) checkMetric(t *testing.T, d *demo) {
	s.kubectl(t, d, "create", "serviceaccount", "scraper", "-n", "default")
	s.kubectl(t, d, "create", "clusterrolebinding", "scraper", "--clusterrole", "podops-metrics-reader", "--serviceaccount", "default:scraper")
	request, err := http.NewRequest(http.MethodGet, "https://"+d.metrics+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(s.kubectl(t, d, "create", "token", "scraper", "-n", "default")))
	// The certificate of the manager names its Service, which has no address here.
	client := &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "podops_build_info{") && strings.Contains(line, fmt.Sprintf("version=%q", s.version(t))) {
			return
		}
	}
	t.Errorf("%s, and no podops_build_info with version %s in\n%s", answer.Status, s.version(t), text)
}

// kubectl runs kubectl as an administrator of the demo's cluster.
func (s *setting) kubectl(t *testing.T, d *demo, arguments ...string) string {
	t.Helper()
	return run(t, filepath.Join(s.bin, "kubectl"), append([]string{"--kubeconfig", filepath.Join(d.dir, "kubeconfig")}, arguments...)...)
}

// startKVStoreOperator runs the operator with its own rights.
func (s *setting) startKVStoreOperator(t *testing.T, d *demo) {
	s.kubectl(t, d, "apply", "--server-side", "-k", filepath.Join(s.root, "examples", "kvstore", "config", "operator-local"))
	admin, err := clientcmd.BuildConfigFromFlags("", filepath.Join(d.dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(s.folder(t, "kvstore-operator"), "operator.kubeconfig")
	account := types.NamespacedName{Namespace: "kvstore-system", Name: "kvstore-operator"}
	if err := managerprocess.WriteKubeconfigOf(t.Context(), admin, account, kubeconfig); err != nil {
		t.Fatal(err)
	}
	s.startProgram(t, "kvstore-operator", func(probe string) []string {
		return []string{"--kubeconfig", kubeconfig, "--backup-to", "/backups", "--health-probe-bind-address", probe}
	})
}

// startSLBManager runs the program of the adapter as an administrator: no manifests grant its rights.
func (s *setting) startSLBManager(t *testing.T, d *demo) {
	kubeconfig := filepath.Join(s.folder(t, "slb-manager"), "manager.kubeconfig")
	admin, err := os.ReadFile(filepath.Join(d.dir, "kubeconfig"))
	if err == nil {
		err = os.WriteFile(kubeconfig, admin, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("ALIYUN_SLB_AK_KEY", "key")
	t.Setenv("ALIYUN_SLB_AK_SECRET", "secret")
	t.Setenv("ALIYUN_SLB_ENDPOINT", "http://127.0.0.1:1") // no service of the demo is for this adapter
	s.startProgram(t, "slb-manager", func(probe string) []string {
		return []string{
			"--kubeconfig", kubeconfig, "--feature-gates=AlibabaCloudSlb=true", "--leader-elect=false", "--metrics-bind-address=0",
			"--health-probe-bind-address", probe,
		}
	})
}

// folder returns a new folder of a program.
func (s *setting) folder(t *testing.T, program string) string {
	t.Helper()
	dir := filepath.Join(s.dir, program+".d")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// startProgram runs a program until it is ready, and checks its restrictions.
func (s *setting) startProgram(t *testing.T, program string, arguments func(probe string) []string) {
	t.Helper()
	probe, err := managerprocess.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	folder := s.folder(t, program)
	p, err := managerprocess.Start(managerprocess.Options{
		Command: append([]string{s.script(t, program, folder)}, arguments(probe)...), Log: filepath.Join(s.dir, program+".log"), Probe: probe,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.End()
	if err := p.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkRestricted(t, "/"+program, folder)
}

// checkRestricted checks the process of an entry point whose arguments contain a folder, as the kernel sees it.
func checkRestricted(t *testing.T, entrypoint, folder string) {
	t.Helper()
	dir, err := processOf(entrypoint, folder)
	if err != nil {
		t.Fatal(err)
	}
	status := read(t, filepath.Join(dir, "status"))
	for _, want := range []string{
		"Uid:\t65532\t65532\t65532\t65532", "Gid:\t65532\t65532\t65532\t65532", "NoNewPrivs:\t1",
		"CapEff:\t0000000000000000", "CapPrm:\t0000000000000000",
	} {
		if !strings.Contains(status, want+"\n") {
			t.Errorf("want %q in\n%s", want, status)
		}
	}
	if !rootIsReadOnly(read(t, filepath.Join(dir, "mountinfo"))) {
		t.Error("the file system of the image can be written")
	}
}

// processOf returns the folder in /proc of a process.
func processOf(entrypoint, folder string) (string, error) {
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return "", err
	}
	for _, path := range all {
		content, err := os.ReadFile(path)
		words := strings.Split(string(content), "\x00")
		if err == nil && words[0] == entrypoint && strings.Contains(string(content), folder+"/") {
			return filepath.Dir(path), nil
		}
	}
	return "", fmt.Errorf("no process is %s with %s in its arguments", entrypoint, folder)
}

// rootIsReadOnly reports whether the mount at the root of a process, which is mounted last, is read-only. The fields of
// proc_pid_mountinfo(5): the mount point is the fifth, its options are the sixth.
func rootIsReadOnly(mounts string) bool {
	readOnly := false
	for line := range strings.Lines(mounts) {
		if fields := strings.Fields(line); len(fields) > 5 && fields[4] == "/" {
			readOnly = slices.Contains(strings.Split(fields[5], ","), "ro")
		}
	}
	return readOnly
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// run runs a command, and returns its output.
func run(t *testing.T, program string, arguments ...string) string {
	t.Helper()
	out, err := exec.Command(program, arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(program), strings.Join(arguments, " "), err, out)
	}
	return string(out)
}
