package front

import (
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// call sends a command through a relay; an empty answer is a failed call.
func call(t *testing.T, socket, line string) string {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, line+"\n"); err != nil {
		return ""
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return ""
	}
	return string(answer)
}

func newFlaky(t *testing.T, rate float64) (*Flaky, *Embedded, string) {
	t.Helper()
	dir := folder(t)
	e, err := StartEmbedded(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closing(t, e) })
	socket := filepath.Join(dir, "flaky.sock")
	f, err := StartFlaky(socket, e.Socket(), rate, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f, e, socket
}

func TestFlakyFailsItsShareOfCalls(t *testing.T) {
	f, _, socket := newFlaky(t, 0.2)
	failed := 0
	for range 500 {
		switch answer := call(t, socket, "show version"); answer {
		case "":
			failed++
		case version + "\n\n":
		default:
			t.Fatalf("got %q", answer)
		}
	}
	if failed < 75 || failed > 125 {
		t.Errorf("%d of 500 failed, want about 100", failed)
	}
	if all, counted := f.Calls(); all != 500 || counted != failed {
		t.Errorf("counts %d failed of %d, want %d of 500", counted, all, failed)
	}
}

// TestFlakyLosesCallsAndAnswers checks that half of the failed calls were executed.
func TestFlakyLosesCallsAndAnswers(t *testing.T) {
	_, e, socket := newFlaky(t, 1)
	for _, name := range []string{"a", "b", "c", "d"} {
		if answer := call(t, socket, "add server web/"+name+" 127.0.0.1:80"); answer != "" {
			t.Errorf("adding %s: %q, want no answer", name, answer)
		}
	}
	var added []string
	e.pool.each(func(s *backendServer) { added = append(added, s.name) })
	if got := strings.Join(added, " "); got != "b d" {
		t.Errorf("servers %q were added, want every other one", got)
	}
}

func TestFlakyRateIsAShare(t *testing.T) {
	for _, rate := range []float64{-0.1, 1.1} {
		if _, err := StartFlaky(filepath.Join(folder(t), "s"), "nowhere", rate, 1, nil); err == nil || !strings.Contains(err.Error(), "0 to 1") {
			t.Errorf("rate %g: got %v, want the way out", rate, err)
		}
	}
}

func TestFlakyClosesWithASilentClient(t *testing.T) {
	f, _, socket := newFlaky(t, 0)
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	began := time.Now()
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > patience/2 {
		t.Errorf("closing took %s", took)
	}
}
