package member

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/examples/kvstore/pkg/api"
	"github.com/podops-dev/podops/examples/kvstore/pkg/client"
	"github.com/podops-dev/podops/examples/kvstore/pkg/hosts"
	"github.com/podops-dev/podops/examples/kvstore/pkg/machine"
	"github.com/podops-dev/podops/examples/kvstore/pkg/node"
	"github.com/podops-dev/podops/examples/kvstore/pkg/pause"
)

// patience is the timeout of conditions that take seconds on an idle machine.
const patience = 30 * time.Second

// single runs the only member of a cluster, and returns its host and a client.
func single(t *testing.T, last int) (string, *client.Client) {
	t.Helper()
	host := fmt.Sprintf("127.67.%d.%d", os.Getpid()%250, last)
	log := slog.New(slog.DiscardHandler)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{
			Node: node.Options{
				ID: "kv-0", Host: host, Cluster: "test", Listen: host, Port: 7000, Dir: t.TempDir(), ElectionTimeout: 200 * time.Millisecond, Log: log,
			},
			Version: "1.0", Port: api.DefaultPort, MaxConnections: 50, Log: log,
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the member ended with %v", err)
		}
	})
	c := client.New(hosts.Resolver{}, api.DefaultPort)
	await(t, "the member is ready", func(ctx context.Context) error {
		_, err := c.Check(ctx, host, "/readyz")
		return err
	})
	return host, c
}

func await(t *testing.T, what string, holds func(context.Context) error) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	for {
		err := holds(ctx)
		if err == nil {
			return
		}
		if !pause.For(ctx, 10*time.Millisecond) {
			t.Fatalf("timed out after %s: %s: %v", patience, what, err)
		}
	}
}

func TestRequests(t *testing.T) {
	host, c := single(t, 1)
	key := "a/b c"
	steps := []struct {
		name    string
		request client.Request
		status  int
		code    api.Code
		body    string
	}{
		{name: "a key that does not exist", request: client.Request{Method: http.MethodGet, Path: client.KeyPath(key)}, status: 404, code: api.NotFound},
		{name: "a new key must not exist", request: client.Request{Method: http.MethodPut, Path: client.KeyPath(key), Body: []byte("1"), Header: map[string]string{"If-Match": "0"}}},
		{name: "now it does", request: client.Request{Method: http.MethodPut, Path: client.KeyPath(key), Body: []byte("2"), Header: map[string]string{"If-Match": "0"}}, status: 412, code: api.Conflict},
		{name: "append", request: client.Request{Method: http.MethodPost, Path: client.KeyPath(key), Body: []byte("2"), Header: map[string]string{api.HeaderClient: "c", api.HeaderSeq: "1"}}},
		{name: "append, repeated", request: client.Request{Method: http.MethodPost, Path: client.KeyPath(key), Body: []byte("2"), Header: map[string]string{api.HeaderClient: "c", api.HeaderSeq: "1"}}},
		{name: "read", request: client.Request{Method: http.MethodGet, Path: client.KeyPath(key)}, body: "12"},
		{name: "an unknown client", request: client.Request{Method: http.MethodPost, Path: client.KeyPath(key), Header: map[string]string{api.HeaderClient: "d", api.HeaderSeq: "2"}}, status: 410, code: api.Expired},
		{name: "a client without a number", request: client.Request{Method: http.MethodPost, Path: client.KeyPath(key), Header: map[string]string{api.HeaderClient: "d"}}, status: 400, code: api.Invalid},
		{name: "no revision", request: client.Request{Method: http.MethodPut, Path: client.KeyPath(key), Header: map[string]string{"If-Match": "*"}}, status: 400, code: api.Invalid},
		{name: "a long key", request: client.Request{Method: http.MethodPut, Path: client.KeyPath(strings.Repeat("k", machine.MaxKeyBytes+1))}, status: 400, code: api.Invalid},
		{name: "a long key, read", request: client.Request{Method: http.MethodGet, Path: client.KeyPath(strings.Repeat("k", machine.MaxKeyBytes+1))}, status: 400, code: api.Invalid},
		{name: "a value at the bound", request: client.Request{Method: http.MethodPut, Path: client.KeyPath("v"), Body: make([]byte, machine.MaxValueBytes)}},
		{name: "a value beyond it", request: client.Request{Method: http.MethodPut, Path: client.KeyPath("v"), Body: make([]byte, machine.MaxValueBytes+1)}, status: 413, code: api.Invalid},
		{name: "an append beyond it", request: client.Request{Method: http.MethodPost, Path: client.KeyPath("v"), Body: []byte("v")}, status: 507, code: api.Full},
		{name: "the only voter is removed", request: client.Request{Method: http.MethodDelete, Path: "/members/kv-0"}, status: 409, code: api.Invalid},
		{name: "a member that is none is removed", request: client.Request{Method: http.MethodDelete, Path: "/members/kv-7"}},
		{name: "a member without a host", request: client.Request{Method: http.MethodPost, Path: "/members", Body: []byte(`{"id":"kv-1"}`)}, status: 409, code: api.Invalid},
		{name: "delete", request: client.Request{Method: http.MethodDelete, Path: client.KeyPath(key)}},
		{name: "read after delete", request: client.Request{Method: http.MethodGet, Path: client.KeyPath(key)}, status: 404, code: api.NotFound},
	}
	for _, step := range steps {
		a, err := c.Do(t.Context(), host, step.request)
		status := 0
		var rejected *client.Error
		if errors.As(err, &rejected) {
			status = rejected.Status
		} else if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if status != step.status || client.CodeOf(err) != step.code {
			t.Errorf("%s: %v, want %d %s", step.name, err, step.status, step.code)
		}
		if step.body != "" && string(a.Body) != step.body {
			t.Errorf("%s: %q, want %q", step.name, a.Body, step.body)
		}
	}
}

func TestABackupHasEveryAcknowledgedWrite(t *testing.T) {
	host, c := single(t, 2)
	const keys = 50
	for n := range keys {
		if _, err := c.Write(t.Context(), host, machine.Command{Op: machine.Put, Key: fmt.Sprint(n), Value: []byte("v")}); err != nil {
			t.Fatal(err)
		}
	}
	var backup bytes.Buffer
	if _, err := c.Backup(t.Context(), host, &backup); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(path, backup.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	contents, err := machine.Inspect(path)
	if diff := cmp.Diff(uint64(keys), contents.Usage.Keys); diff != "" || err != nil {
		t.Errorf("keys: %v (-want +got):\n%s", err, diff)
	}
	damaged := backup.Bytes()
	damaged[len(damaged)/2]++
	if err := os.WriteFile(path, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := machine.Inspect(path); !errors.Is(err, machine.ErrDamaged) {
		t.Errorf("a changed byte: %v, want ErrDamaged", err)
	}
}

// TestMembersOfOtherClustersAreRejected matters because the address of a pod that is gone may be that of a
// member of another cluster.
func TestMembersOfOtherClustersAreRejected(t *testing.T) {
	host, _ := single(t, 3)
	for _, greeting := range []string{
		"kvstore/1 other " + host + ":7000\n", "kvstore/1 test 127.67.0.9:7000\n", strings.Repeat("x", 10_000), "\n",
	} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", host+":7000")
		if err != nil {
			t.Fatal(err)
		}
		// The member may close the connection before all of it is written.
		_, _ = conn.Write([]byte(greeting))
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		_, err = conn.Read(make([]byte, 1))
		var timeout net.Error
		if err == nil || errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("the greeting %.40q is accepted: %v", greeting, err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}
