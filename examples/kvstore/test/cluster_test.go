package test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podops-dev/podops/examples/kvstore/pkg/api"
	"github.com/podops-dev/podops/examples/kvstore/pkg/client"
	"github.com/podops-dev/podops/examples/kvstore/pkg/hosts"
)

// patience is the timeout of conditions that take seconds on an idle machine.
const patience = 40 * time.Second

// program is the path of kvstore, built by TestMain.
var program string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "kvstore-test")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "kvstore")
		if out, err := exec.Command("go", "build", "-o", program, "../cmd/kvstore").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building kvstore: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// cluster is a set of processes with addresses of their own.
type cluster struct {
	t      *testing.T
	dir    string
	number int // of its addresses
	client *client.Client
	flags  []string // of each process

	members []*process
}

// process is a member that runs or has run.
type process struct {
	id, address, version string
	command              *exec.Cmd
	ended                chan struct{}
}

// newCluster returns a cluster without processes. Clusters of a test have different numbers.
func newCluster(t *testing.T, number int) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir(), number: number}
	c.client = client.New(c.resolver(), api.DefaultPort)
	t.Cleanup(func() {
		for _, p := range c.members {
			p.signal(syscall.SIGKILL)
			<-p.ended
			if t.Failed() {
				log, _ := os.ReadFile(c.log(p.id))
				t.Logf("log of %s:\n%s", p.id, tail(string(log), 30))
			}
		}
	})
	return c
}

func tail(text string, lines int) string {
	all := strings.Split(text, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func (c *cluster) resolver() hosts.Resolver {
	return hosts.Resolver{File: filepath.Join(c.dir, "hosts")}
}

func (c *cluster) log(id string) string  { return filepath.Join(c.dir, id+".log") }
func (c *cluster) data(id string) string { return filepath.Join(c.dir, id) }

// start starts the member of an ordinal, for the first time or again.
func (c *cluster) start(ordinal int, version string) *process {
	c.t.Helper()
	for len(c.members) <= ordinal {
		n := len(c.members)
		p := &process{id: fmt.Sprintf("kv-%d", n), address: fmt.Sprintf("127.66.%d.%d", os.Getpid()%250, 10*c.number+n+1), ended: make(chan struct{})}
		close(p.ended)
		c.members = append(c.members, p)
	}
	p := c.members[ordinal]
	<-p.ended
	c.publish(ordinal)
	log, err := os.OpenFile(c.log(p.id), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	args := append([]string{
		"serve", "--id", p.id, "--host", p.id + ".kv", "--listen", p.address, "--seeds", "kv", "--bootstrap", "kv-0",
		"--data", c.data(p.id), "--hosts-file", c.resolver().File, "--cluster", filepath.Base(c.dir), "--version", version,
	}, c.flags...)
	p.version, p.command, p.ended = version, exec.Command(program, args...), make(chan struct{})
	p.command.Stdout, p.command.Stderr = log, log
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.command.Start(); err != nil {
		c.t.Fatal(err)
	}
	ended := p.ended
	go func() {
		_ = p.command.Wait() // how it ended is in ProcessState
		close(ended)
	}()
	return p
}

// publish writes the file of hosts, with the members up to an ordinal.
func (c *cluster) publish(ordinal int) {
	var lines strings.Builder
	for n, p := range c.members {
		if n <= ordinal || p.isRunning() {
			fmt.Fprintf(&lines, "%s %s.kv kv\n", p.address, p.id)
		}
	}
	file := c.resolver().File
	if err := errors.Join(os.WriteFile(file+".new", []byte(lines.String()), 0o644), os.Rename(file+".new", file)); err != nil {
		c.t.Fatal(err)
	}
}

func (p *process) isRunning() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (p *process) signal(s syscall.Signal) {
	if p.isRunning() {
		_ = p.command.Process.Signal(s) // it may have ended just now
	}
}

// end sends a signal and waits for the end.
func (p *process) end(t *testing.T, s syscall.Signal) {
	t.Helper()
	p.signal(s)
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatalf("%s has not ended %s after %s", p.id, patience, s)
	}
}

// up starts members and waits until all are ready.
func (c *cluster) up(members int, version string) {
	c.t.Helper()
	for n := range members {
		c.start(n, version)
	}
	c.awaitReady()
}

// awaitReady waits until each running member is ready.
func (c *cluster) awaitReady() {
	c.t.Helper()
	await(c.t, "every member is ready", func(ctx context.Context) (bool, string) {
		for _, p := range c.members {
			if !p.isRunning() {
				continue
			}
			if _, err := c.client.Check(ctx, p.address, "/readyz"); err != nil {
				return false, p.id + ": " + err.Error()
			}
		}
		return true, ""
	})
}

// leader waits for a leader that all running members agree on.
func (c *cluster) leader() *process {
	c.t.Helper()
	var leader *process
	await(c.t, "the members agree on a leader", func(ctx context.Context) (bool, string) {
		id := ""
		for _, p := range c.members {
			if !p.isRunning() {
				continue
			}
			status, err := c.client.Status(ctx, p.address)
			if err != nil {
				return false, p.id + ": " + err.Error()
			}
			if status.Leader == "" || id != "" && status.Leader != id {
				return false, fmt.Sprintf("%s follows %q, another member %q", p.id, status.Leader, id)
			}
			id = status.Leader
		}
		for _, p := range c.members {
			if p.id == id && p.isRunning() {
				leader = p
			}
		}
		return leader != nil, "the leader " + id + " has ended"
	})
	return leader
}

// await polls until a condition holds.
func await(t *testing.T, what string, holds func(context.Context) (ok bool, seen string)) {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		ok, seen := holds(ctx)
		if ok {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("timed out after %s: %s: %s", patience, what, seen)
		case <-ticker.C:
		}
	}
}
