package test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/examples/kvstore/pkg/api"
	"github.com/podops-dev/podops/examples/kvstore/pkg/client"
	"github.com/podops-dev/podops/examples/kvstore/pkg/machine"
)

// memberIDs returns the ids of the voters.
func (c *cluster) memberIDs() []string {
	c.t.Helper()
	status, err := c.client.Status(c.t.Context(), c.leader().address)
	if err != nil {
		c.t.Fatal(err)
	}
	var ids []string
	for _, m := range status.Members {
		if m.Voter {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

func TestScale(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 5)
	c.up(3, "1.0")
	report := c.underLoad(func() {
		c.start(3, "1.0")
		c.start(4, "1.0")
		c.awaitReady()
		if got := c.memberIDs(); len(got) != 5 {
			t.Errorf("voters: %v, want 5", got)
		}
		// The leader itself is removed as well.
		if _, err := c.client.Do(t.Context(), c.leader().address, client.Request{Method: http.MethodPost, Path: "/leader/transfer?to=kv-4"}); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"kv-4", "kv-3", "kv-3"} {
			if _, err := c.client.RemoveMember(t.Context(), c.members[0].address, id); err != nil {
				t.Fatalf("removing %s: %v", id, err)
			}
		}
		for _, p := range c.members[3:] {
			await(t, p.id+" is not ready", func(ctx context.Context) (bool, string) {
				_, err := c.client.Check(ctx, p.address, "/readyz")
				return client.CodeOf(err) == api.Unavailable, "it is"
			})
			p.end(t, syscall.SIGTERM)
		}
		c.publish(2)
	})
	intact(t, report)
	if diff := cmp.Diff(3, len(c.memberIDs())); diff != "" {
		t.Errorf("voters (-want +got):\n%s", diff)
	}
}

// kvstore runs the program with the hosts of the cluster, and returns its output.
func (c *cluster) kvstore(args ...string) (string, error) {
	command := exec.Command(program, args...)
	command.Env = append(os.Environ(), "KVSTORE_HOSTS_FILE="+c.resolver().File)
	out, err := command.CombinedOutput()
	return string(out), err
}

func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 6)
	c.up(3, "1.0")
	for _, value := range []string{"1", "2"} {
		if _, err := c.client.Write(t.Context(), c.members[1].address, machine.Command{Op: machine.Put, Key: "k/" + value, Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "backup.db")
	if out, err := c.kvstore("backup", "--from", "http://kv:8080", "--to", path); err != nil || !strings.Contains(out, "wrote 2 keys") {
		t.Fatalf("backup: %v\n%s", err, out)
	}
	restored := newCluster(t, 7)
	restored.flags = []string{"--restore-from", path}
	restored.up(3, "1.0")
	for _, value := range []string{"1", "2"} {
		await(t, "the backup is restored", func(ctx context.Context) (bool, string) {
			entry, err := restored.client.Get(ctx, restored.members[2].address, "k/"+value)
			return err == nil && bytes.Equal(entry.Value, []byte(value)), string(entry.Value)
		})
	}
	// A write after the restore is kept by a restart, which does not restore again.
	if _, err := restored.client.Write(t.Context(), restored.members[0].address, machine.Command{Op: machine.Put, Key: "k/1", Value: []byte("new")}); err != nil {
		t.Fatal(err)
	}
	for n, p := range restored.members {
		p.end(t, syscall.SIGTERM)
		restored.start(n, "1.0")
		restored.awaitReady()
	}
	entry, err := restored.client.Get(t.Context(), restored.members[0].address, "k/1")
	if err != nil || string(entry.Value) != "new" {
		t.Errorf("after a restart: %q, %v; want the value written after the restore", entry.Value, err)
	}
}

// TestMigrate migrates a store twice at once, and again.
func TestMigrate(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 20)
	c.up(3, "1.0")
	for key, value := range map[string]string{"user:ann": "1", "user:bob": "2", "users/bob": "new", "other": "3"} {
		if _, err := c.client.Write(t.Context(), c.members[1].address, machine.Command{Op: machine.Put, Key: key, Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := c.kvstore("migrate", "--url", "http://kv:8080", "--to", "2"); err == nil || !strings.Contains(out, "--to is from 1 to 1: version ") {
		t.Errorf("a schema that the version does not know: %v\n%s", err, out)
	}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if out, err := c.kvstore("migrate", "--url", "http://kv:8080", "--to", "1"); err != nil || !strings.Contains(out, "the schema has version 1\n") {
				t.Errorf("beside another migration: %v\n%s", err, out)
			}
		})
	}
	both.Wait()
	if out, err := c.kvstore("migrate", "--url", "http://kv:8080", "--to", "1"); err != nil || out != "the schema has version 1\n" {
		t.Errorf("again: %v\n%s", err, out)
	}
	for key, value := range map[string]string{"users/ann": "1", "users/bob": "new", "user:ann": "1", "user:bob": "2", "kvstore/schema": "1"} {
		if entry, err := c.client.Get(t.Context(), c.members[2].address, key); err != nil || string(entry.Value) != value {
			t.Errorf("%s: %q, %v; want %q", key, entry.Value, err, value)
		}
	}
}

func TestBackupToAProviderThatIsDownFails(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 8)
	c.up(1, "1.0")
	if out, err := c.kvstore("backup", "--from", "http://kv:8080", "--to", "http://127.66.255.254:1/backup"); err == nil {
		t.Errorf("the backup succeeded:\n%s", out)
	}
}

func TestFaultsOfVersions(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 9)
	c.up(1, "1.0")
	if out, err := c.kvstore("check", "--url", "http://kv-0.kv:8080", "--version", "1.0"); err != nil {
		t.Errorf("check of a healthy version: %v\n%s", err, out)
	}
	if out, err := c.kvstore("check", "--url", "http://kv-0.kv:8080", "--version", "2.0", "--timeout", "300ms"); err == nil {
		t.Errorf("check of another version succeeds:\n%s", out)
	}
	c.members[0].end(t, syscall.SIGTERM)
	c.restart(c.members[0], "1.1-bad")
	await(t, "the check of an unhealthy version names the fault", func(context.Context) (bool, string) {
		out, err := c.kvstore("check", "--url", "http://kv-0.kv:8080", "--timeout", "1s")
		return err != nil && strings.Contains(out, "the fault health is set"), fmt.Sprintf("%v\n%s", err, out)
	})
	if _, err := c.client.Write(t.Context(), c.members[0].address, machine.Command{Op: machine.Put, Key: "k", Value: []byte("v")}); err != nil {
		t.Errorf("an unhealthy version serves: %v", err)
	}
}
