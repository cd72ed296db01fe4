package runtimeapi_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/podops-dev/podops/pkg/adapters/haproxy/runtimeapi"
	"github.com/podops-dev/podops/test/await"
)

// fakeHAProxy answers each line with the result of answer, and records the lines.
type fakeHAProxy struct {
	mu    sync.Mutex
	lines []string
}

// received returns a copy of the lines.
func (h *fakeHAProxy) received() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.lines)
}

func startFake(t *testing.T, answer func(conn net.Conn, line string)) (*runtimeapi.Client, *fakeHAProxy) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	heard := &fakeHAProxy{}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				line, _ := bufio.NewReader(conn).ReadString('\n')
				heard.mu.Lock()
				heard.lines = append(heard.lines, line)
				heard.mu.Unlock()
				answer(conn, line)
			}()
		}
	}()
	endpoint, err := runtimeapi.ParseEndpoint("tcp:" + listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return runtimeapi.New(endpoint, 5*time.Second), heard
}

func answerWith(text string) func(net.Conn, string) {
	return func(conn net.Conn, _ string) { _, _ = conn.Write([]byte(text)) }
}

func TestErrorsOfHAProxyHaveTypedErrors(t *testing.T) {
	for answer, want := range map[string]error{
		"No such server.\n\n": runtimeapi.ErrNoServer,
		"No such backend.\n":  runtimeapi.ErrNoBackend,
		"Permission denied\n": runtimeapi.ErrDenied,
		"something new\n\n":   runtimeapi.ErrRefused,
		"Server still has connections attached to it, cannot remove it.": runtimeapi.ErrBusy,
		"Only servers in maintenance mode can be deleted.":               runtimeapi.ErrBusy,
		"Already exists a server with the same name in backend.\n\n":     runtimeapi.ErrExists,
	} {
		client, _ := startFake(t, answerWith(answer))
		if err := client.SetState(t.Context(), "web", "a", runtimeapi.StateDrain); !errors.Is(err, want) {
			t.Errorf("answer %q: %v, want %v", answer, err, want)
		}
	}
}

func TestATruncatedAnswerIsAnError(t *testing.T) {
	whole := "1\n# be_id be_name srv_id srv_name srv_addr\n3 web 1 a 10.0.0.1\n"
	for sentence, answer := range map[string]string{
		"an empty answer":         "",
		"cut between two servers": whole,
		"cut in the first line":   "1\n# be_",
		"cut before the columns":  "1",
	} {
		client, _ := startFake(t, answerWith(answer))
		if servers, err := client.Servers(t.Context(), "web"); err == nil {
			t.Errorf("%s: %v without an error: a missing server would count as removed", sentence, servers)
		}
	}
}

func TestInvalidNamesNeverReachTheSocket(t *testing.T) {
	client, heard := startFake(t, answerWith("\n"))
	ctx := t.Context()
	bad := []string{"", "a b", "a\nshutdown frontend f", "a;show info", "a/b", "ä", "#1", strings.Repeat("a", 401), "a\x00"}
	for _, name := range bad {
		for what, err := range map[string]error{
			"backend": client.SetState(ctx, name, "a", runtimeapi.StateReady),
			"state":   client.SetState(ctx, "web", name, runtimeapi.StateReady),
			"weight":  client.SetWeight(ctx, "web", name, 1),
			"address": client.SetAddress(ctx, "web", name, netip.MustParseAddrPort("10.0.0.1:1")),
			"check":   client.EnableCheck(ctx, "web", name),
			"delete":  client.Delete(ctx, "web", name),
			"end":     client.EndSessions(ctx, "web", name),
			"add":     client.Add(ctx, "web", runtimeapi.NewServer{Name: name, Address: netip.MustParseAddrPort("10.0.0.1:1")}),
		} {
			if err == nil {
				t.Errorf("%s with the name %q: no error", what, name)
			}
		}
		if _, err := client.Servers(ctx, name); err == nil {
			t.Errorf("Servers of %q: no error", name)
		}
	}
	for sentence, err := range map[string]error{
		"an unknown state":  client.SetState(ctx, "web", "a", "ready; show info"),
		"a negative weight": client.SetWeight(ctx, "web", "a", -1),
		"a large weight":    client.SetWeight(ctx, "web", "a", 257),
		"a zone":            client.SetAddress(ctx, "web", "a", netip.MustParseAddrPort("[fe80::1%a\nb]:1")),
		"no port":           client.Add(ctx, "web", runtimeapi.NewServer{Name: "a", Address: netip.MustParseAddrPort("10.0.0.1:0")}),
		"no address":        client.Add(ctx, "web", runtimeapi.NewServer{Name: "a"}),
	} {
		if err == nil {
			t.Errorf("%s: no error", sentence)
		}
	}
	if lines := heard.received(); len(lines) > 0 {
		t.Errorf("HAProxy was sent %q", lines)
	}
}

func TestAHostThatDoesNotAnswerTimesOut(t *testing.T) {
	client, _ := startFake(t, func(conn net.Conn, _ string) { _, _ = conn.Read(make([]byte, 1)) })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	started := time.Now()
	err := client.SetState(ctx, "web", "a", runtimeapi.StateReady)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v, want the deadline", err)
	}
	if took := time.Since(started); took > 4*time.Second {
		t.Errorf("took %s", took)
	}
}

func TestAnEndlessAnswerIsAnError(t *testing.T) {
	client, _ := startFake(t, func(conn net.Conn, _ string) {
		for block := make([]byte, 1<<20); ; {
			if _, err := conn.Write(block); err != nil {
				return
			}
		}
	})
	if _, err := client.Servers(t.Context(), "web"); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("err = %v, want that the answer is too long", err)
	}
}

func TestFourCommandsRunAtOnceAndTheFifthWaits(t *testing.T) {
	arrived, release := make(chan struct{}, 5), make(chan struct{})
	client, heard := startFake(t, func(conn net.Conn, _ string) {
		arrived <- struct{}{}
		<-release
		_, _ = conn.Write([]byte("\n"))
	})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := client.SetState(t.Context(), "web", "a", runtimeapi.StateReady); err != nil {
				t.Error(err)
			}
		})
	}
	for range 4 {
		await.Receive(t, "a command arrives", arrived)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := client.SetState(ctx, "web", "fifth", runtimeapi.StateReady)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "turn") {
		t.Errorf("err = %v, want that it waited for its turn", err)
	}
	close(release)
	all.Wait()
	if lines := heard.received(); len(lines) != 4 {
		t.Errorf("HAProxy was sent %q, want four lines: it accepts ten connections to a stats socket", lines)
	}
}
