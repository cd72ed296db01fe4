package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestAProcessIsAliveUntilItEnds(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := findProcess(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if !p.alive() {
		t.Error("a running process is reported as ended")
	}
	p.signal(syscall.SIGKILL)
	if err := cmd.Wait(); err == nil {
		t.Error("the process did not get the signal")
	}
	if p.alive() {
		t.Error("an ended process is reported as alive")
	}
}

func TestAProcessThatWasNotReapedIsDead(t *testing.T) {
	cmd := exec.Command("true")
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// The pipe ends with the process, which then waits for Wait.
	if _, err := output.Read(make([]byte, 1)); err == nil {
		t.Fatal("true has output")
	}
	for (process{PID: cmd.Process.Pid}).state(t) != "Z" {
	}
	if _, err := findProcess(cmd.Process.Pid); err == nil {
		t.Error("found")
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func (p process) state(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.PID), "stat"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(data[strings.LastIndex(string(data), ")")+1:]))[0]
}

func TestAReusedProcessIDIsAnotherProcess(t *testing.T) {
	self, err := findProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	self.Start += "1"
	if self.alive() {
		t.Error("a process with another start time must differ")
	}
}

func TestLogTail(t *testing.T) {
	c := config{Dir: t.TempDir()}
	if got := c.logTail("etcd"); !strings.Contains(got, "cannot be read") {
		t.Errorf("without a log: %s", got)
	}
	if err := writeFile(c.log("etcd"), []byte("first\n"+strings.Repeat("more\n", tailLines-1)+"last\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	got := c.logTail("etcd")
	if strings.Contains(got, "first") || !strings.HasSuffix(got, "last") || strings.Count(got, "\n") != tailLines {
		t.Errorf("tail:\n%s", got)
	}
}
