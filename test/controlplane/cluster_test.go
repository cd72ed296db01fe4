package controlplane_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestUpTwiceLeavesTheClusterAsItIs(t *testing.T) {
	c := newCluster(t)
	t.Logf("from up to ready: %.1fs", c.took.Seconds())
	before := processesOf(t, c.dir)
	if len(before) != 6 {
		t.Errorf("want a supervisor and 5 components, got:\n%s", strings.Join(before, "\n"))
	}
	if output := c.up(t); !strings.Contains(output, "already up") {
		t.Errorf("second up prints %q", output)
	}
	if after := processesOf(t, c.dir); strings.Join(after, "\n") != strings.Join(before, "\n") {
		t.Errorf("processes before:\n%s\nafter:\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
}

func TestDownLeavesNothing(t *testing.T) {
	c := newCluster(t)
	run(t, "down", "--dir", c.dir)
	if left := processesOf(t, c.dir); len(left) > 0 {
		t.Errorf("processes left:\n%s", strings.Join(left, "\n"))
	}
	for _, path := range []string{c.dir, c.kubeconfig} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s still exists (%v)", path, err)
		}
	}
	run(t, "down", "--dir", c.dir) // a missing cluster is no error
}

func TestDownWithKeepKeepsFiles(t *testing.T) {
	c := newCluster(t)
	run(t, "down", "--keep", "--dir", c.dir)
	if left := processesOf(t, c.dir); len(left) > 0 {
		t.Errorf("processes left:\n%s", strings.Join(left, "\n"))
	}
	if info, err := os.Stat(filepath.Join(c.dir, "audit.log")); err != nil || info.Size() == 0 {
		t.Errorf("no audit log: %v, %v", info, err)
	}
}

func TestClustersSideBySideHaveDifferentPorts(t *testing.T) {
	a, b := newCluster(t), newCluster(t)
	ofA, ofB := a.admin(t).CoreV1().RESTClient().Get().URL().Host, b.admin(t).CoreV1().RESTClient().Get().URL().Host
	if ofA == ofB {
		t.Errorf("both serve at %s", ofA)
	}
	for _, c := range []*testCluster{a, b} {
		if status := statusOf(c.dir); !strings.Contains(status, "running") || strings.Contains(status, "ended") {
			t.Errorf("status: %s", status)
		}
	}
}

func TestADeadComponentEndsTheClusterAndUpStartsItAgain(t *testing.T) {
	c := newCluster(t)
	kill(t, c, "kube-scheduler")
	eventually(t, "everything ends", func() error {
		if left := processesOf(t, c.dir); len(left) > 0 {
			return fmt.Errorf("still running: %s", strings.Join(left, "\n"))
		}
		return nil
	})
	if status := statusOf(c.dir); !strings.Contains(status, "kube-scheduler has ended: signal: killed") {
		t.Errorf("status does not report the cause: %s", status)
	}
	if output := c.up(t); !strings.Contains(output, "ready after") {
		t.Errorf("up prints %q", output)
	}
}

func TestAKilledSupervisorTakesItsComponentsWithIt(t *testing.T) {
	c := newCluster(t)
	kill(t, c, "supervise")
	eventually(t, "everything ends", func() error {
		if left := processesOf(t, c.dir); len(left) > 0 {
			return fmt.Errorf("still running: %s", strings.Join(left, "\n"))
		}
		return nil
	})
	if status := statusOf(c.dir); !strings.Contains(status, "not up") {
		t.Errorf("status: %s", status)
	}
}

func TestAClusterEndsWithItsParent(t *testing.T) {
	folder := t.TempDir()
	dir := filepath.Join(folder, "state")
	parent := exec.Command("sleep", "600")
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { run(t, "down", "--dir", dir) })
	run(t, "up", "--bin", programs, "--dir", dir, "--kubeconfig", filepath.Join(folder, "kubeconfig"), "--nodes", "1",
		"--parent-pid", strconv.Itoa(parent.Process.Pid))
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // it was killed, as its error reports
	eventually(t, "everything ends", func() error {
		if left := processesOf(t, dir); len(left) > 0 {
			return fmt.Errorf("still running: %s", strings.Join(left, "\n"))
		}
		return nil
	})
}

func TestAnInterruptedUpLeavesNoProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	t.Cleanup(func() { run(t, "down", "--dir", dir) })
	up := exec.Command(command, "up", "--bin", programs, "--dir", dir, "--kubeconfig", filepath.Join(t.TempDir(), "kubeconfig"))
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first component starts", func() error {
		for _, process := range processesOf(t, dir) {
			if strings.Contains(process, "/etcd ") {
				return nil
			}
		}
		return fmt.Errorf("not yet")
	})
	if err := up.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := up.Wait(); err == nil {
		t.Error("up must fail")
	}
	if left := processesOf(t, dir); len(left) > 0 {
		t.Errorf("processes left:\n%s", strings.Join(left, "\n"))
	}
}

func TestUpReportsTheCause(t *testing.T) {
	folder := t.TempDir()
	foreign := filepath.Join(folder, "foreign")
	if err := os.MkdirAll(filepath.Join(foreign, "precious"), 0o755); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(folder, "broken")
	if err := os.MkdirAll(broken, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelets"} {
		script := "#!/bin/sh\necho no luck with " + name + "; exit 3\n"
		if err := os.WriteFile(filepath.Join(broken, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		args []string
		want []string
	}{
		"a state folder with something else in it": {[]string{"--dir", foreign}, []string{"is not empty and holds no cluster"}},
		"missing programs":                         {[]string{"--bin", folder}, []string{"run controlplane build"}},
		"a program that ends at once":              {[]string{"--bin", broken}, []string{"etcd has ended: exit status 3", "no luck with etcd"}},
		"too many nodes":                           {[]string{"--nodes", "255"}, []string{"1 to 254"}},
		"a range that is not loopback":             {[]string{"--cidr", "10.0.0.0/16"}, []string{"must be a /16 in 127.0.0.0/8"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			base := []string{"up", "--bin", programs, "--dir", filepath.Join(t.TempDir(), "state"), "--kubeconfig", filepath.Join(folder, "kubeconfig")}
			output, err := exec.Command(command, append(base, tc.args...)...).CombinedOutput()
			if err == nil {
				t.Fatalf("up succeeded:\n%s", output)
			}
			for _, want := range tc.want {
				if !strings.Contains(string(output), want) {
					t.Errorf("want %q in:\n%s", want, output)
				}
			}
		})
	}
	if _, err := os.Stat(filepath.Join(foreign, "precious")); err != nil {
		t.Errorf("the foreign folder was changed: %v", err)
	}
}

// kill kills the only process of the cluster whose command line contains word.
func kill(t *testing.T, c *testCluster, word string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(data), c.dir) || !strings.Contains(string(data), word) {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(file, "/")[2])
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("no process of %s has %s on its command line", c.dir, word)
}
