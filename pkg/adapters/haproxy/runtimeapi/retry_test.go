package runtimeapi_test

import (
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/podops-dev/podops/pkg/adapters/haproxy/runtimeapi"
)

// hangUp closes the first connections without an answer, and answers the later ones.
func hangUp(first int32, answer string) func(net.Conn, string) {
	var calls atomic.Int32
	return func(conn net.Conn, _ string) {
		if calls.Add(1) > first {
			_, _ = conn.Write([]byte(answer))
		}
	}
}

func TestACommandIsSentAgainWhenTheConnectionFails(t *testing.T) {
	client, heard := startFake(t, hangUp(3, "\n"))
	if err := client.SetState(t.Context(), "web", "a", runtimeapi.StateReady); err != nil {
		t.Errorf("SetState after three failed connections: %v", err)
	}
	if got := len(heard.received()); got != 4 {
		t.Errorf("sent %d times, want 4", got)
	}
	client, heard = startFake(t, hangUp(100, ""))
	if err := client.SetState(t.Context(), "web", "a", runtimeapi.StateReady); err == nil {
		t.Error("SetState succeeds though no connection did")
	}
	if got := len(heard.received()); got != 4 {
		t.Errorf("sent %d times, want 4 at most", got)
	}
}

// TestARetryAfterALostAnswerIsNoError checks a command that HAProxy executes, whose answer
// is lost, and whose second try HAProxy rejects.
func TestARetryAfterALostAnswerIsNoError(t *testing.T) {
	server := runtimeapi.NewServer{Name: "a", Address: netip.MustParseAddrPort("127.0.0.1:80")}
	client, _ := startFake(t, hangUp(1, "Already exists a server with the same name in backend.\n"))
	if err := client.Add(t.Context(), "web", server); err != nil {
		t.Errorf("Add after a lost answer: %v", err)
	}
	client, _ = startFake(t, hangUp(0, "Already exists a server with the same name in backend.\n"))
	if err := client.Add(t.Context(), "web", server); !errors.Is(err, runtimeapi.ErrExists) {
		t.Errorf("Add of an existing server: %v, want ErrExists", err)
	}
	client, _ = startFake(t, hangUp(1, "No such server.\n"))
	if err := client.Delete(t.Context(), "web", "a"); err != nil {
		t.Errorf("Delete after a lost answer: %v", err)
	}
}
