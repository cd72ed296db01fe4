// Package controlplane_test runs the local control plane as its users do: with the command,
// as real processes.
package controlplane_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podops-dev/podops/test/controlplane/build"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// The command and the folder with the programs, set by TestMain.
var command, programs string

// TestMain builds the command, and the programs unless PODOPS_BIN names a folder
// that has them. The first build takes longer than the default -timeout of go
// test: run `controlplane build` before.
func TestMain(m *testing.M) {
	code, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func buildAndRun(m *testing.M) (int, error) {
	programs = os.Getenv("PODOPS_BIN")
	if programs == "" {
		programs = filepath.Join("..", "..", "bin")
		origin, err := build.OriginOf(os.Getenv)
		if err != nil {
			return 1, err
		}
		if err := build.Newest().Run(context.Background(), ".", programs, origin, nil, os.Stderr); err != nil {
			return 1, err
		}
	}
	folder, err := os.MkdirTemp("", "controlplane-test")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(folder)
	command = filepath.Join(folder, "controlplane")
	if output, err := exec.Command("go", "build", "-o", command, "./cmd/controlplane").CombinedOutput(); err != nil {
		return 1, fmt.Errorf("building the command: %w\n%s", err, output)
	}
	return m.Run(), nil
}

// testCluster is a cluster in a folder of its own, which ends with the test.
type testCluster struct {
	dir        string
	kubeconfig string
	took       time.Duration
}

// run runs the command and returns its output; a failure fails the test.
func run(t *testing.T, args ...string) string {
	t.Helper()
	output, err := exec.Command(command, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("controlplane %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return string(output)
}

// newCluster starts a cluster of two nodes that also ends when this process is killed.
func newCluster(t *testing.T) *testCluster {
	t.Helper()
	folder := t.TempDir()
	c := &testCluster{dir: filepath.Join(folder, "state"), kubeconfig: filepath.Join(folder, "kubeconfig")}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("status at the end:\n%s", statusOf(c.dir))
		}
		run(t, "down", "--dir", c.dir)
	})
	began := time.Now()
	c.up(t)
	c.took = time.Since(began)
	return c
}

func (c *testCluster) up(t *testing.T) string {
	t.Helper()
	return run(t, "up", "--bin", programs, "--dir", c.dir, "--kubeconfig", c.kubeconfig, "--nodes", "2",
		"--parent-pid", fmt.Sprint(os.Getpid()))
}

// admin returns a client of the cluster's administrator.
func (c *testCluster) admin(t *testing.T) kubernetes.Interface {
	t.Helper()
	return client(t, c.kubeconfig)
}

// kubelet returns a client with the identity of a node's kubelet.
func (c *testCluster) kubelet(t *testing.T, node string) kubernetes.Interface {
	t.Helper()
	return client(t, filepath.Join(c.dir, "kubeconfigs", node))
}

func client(t *testing.T, kubeconfig string) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func statusOf(dir string) string {
	output, err := exec.Command(command, "status", "--dir", dir).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%s(%v)", output, err)
	}
	return string(output)
}

// eventually waits until check returns nil; its last error fails the test.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// processesOf lists the processes that name dir on their command line.
func processesOf(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(data), dir) {
			found = append(found, strings.ReplaceAll(string(data), "\x00", " "))
		}
	}
	return found
}
