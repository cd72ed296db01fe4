package front

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestEmbeddedAnswersAsHAProxyDoes checks that a client of HAProxy works with the embedded
// proxy: it gives the same answers to the commands of adapters, valid and invalid.
func TestEmbeddedAnswersAsHAProxyDoes(t *testing.T) {
	script := []string{
		"show servers state other", "show stat other 4 -1",
		"add server other/a 127.0.0.1:80", "add server web/a", "set server web/a state ready", "del server web/a",
		"add server web/a 127.0.0.1:1080 weight 5", "add server web/a 127.0.0.1:1080 weight 5",
		"get weight web/a", "set server web/a weight 257", "set server web/a weight 7", "get weight web/a",
		"set server web/a state gone", "set server web/a state drain", "del server web/a",
		"set server web/a state ready", "enable health web/a", "del server web/a",
		"set server web/a addr 127.0.0.2 port 1081", "set server web/a addr 127.0.0.2 port 1081",
		"shutdown sessions server web/a", "shutdown sessions server web/b",
		"disable server web/a", "enable server web/a", "set server web/a state maint",
		"add server web/b 127.0.0.1:1082 check inter 50ms weight 256",
		"set server web/b weight 1; set server web/c weight 1; get weight web/b",
		"del server web/a", "set server web/a state ready",
		"add server web/d 127.0.0.1:1082 weight 257",
	}
	// Both reject these commands, with different texts.
	const differs = "(refused)"
	own := map[string]bool{"enable health web/a": true, "add server web/d 127.0.0.1:1082 weight 257": true}
	answers := map[string][]string{}
	both(t, func(t *testing.T, b balancer) {
		name := t.Name()[strings.LastIndex(t.Name(), "/")+1:]
		for _, line := range script {
			answer := strings.TrimSpace(command(t, b, line))
			if own[line] && answer != "" && answer != "New server registered." {
				answer = differs
			}
			answers[name] = append(answers[name], line+" -> "+answer)
		}
	})
	if diff := cmp.Diff(answers["haproxy"], answers["embedded"]); diff != "" {
		t.Errorf("answers (-haproxy +embedded):\n%s", diff)
	}
}

// states returns the columns of a server that adapters read.
func states(t *testing.T, b balancer) []string {
	t.Helper()
	text := command(t, b, "show servers state web")
	if !strings.HasPrefix(text, "1\n# be_id ") || !strings.HasSuffix(text, "\n\n") {
		t.Fatalf("incomplete table: %q", text)
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	columns := strings.Fields(lines[1])[1:]
	var out []string
	for _, line := range lines[2:] {
		fields := strings.Fields(line)
		if len(fields) != len(columns) {
			t.Fatalf("%d fields in %d columns: %s", len(fields), len(columns), line)
		}
		var kept []string
		for i, column := range columns {
			switch column {
			case "be_name", "srv_id", "srv_name", "srv_addr", "srv_port", "srv_op_state", "srv_admin_state", "srv_uweight", "srv_iweight":
				kept = append(kept, column+"="+fields[i])
			case "srv_check_state": // Whether a check is under way is a matter of luck.
				kept = append(kept, column+"="+strings.NewReplacer("3", "2", "7", "6", "15", "14").Replace(fields[i]))
			}
		}
		out = append(out, strings.Join(kept, " "))
	}
	return out
}

func TestEmbeddedShowsStatesAsHAProxyDoes(t *testing.T) {
	address, _, _ := backend(t, "first")
	steps := []string{
		"show version", // and the table is empty
		"add server web/a " + address + " weight 5",
		"set server web/a state ready", "set server web/a state drain", "set server web/a weight 0",
		"set server web/a state maint",
		"add server web/b " + address + " check inter 50ms",
		"enable health web/b", "set server web/b state ready", "set server web/b state maint",
		"del server web/a", "add server web/c " + address,
	}
	seen := map[string][]string{}
	both(t, func(t *testing.T, b balancer) {
		name := t.Name()[strings.LastIndex(t.Name(), "/")+1:]
		for _, step := range steps {
			command(t, b, step)
			seen[name] = append(seen[name], step+"\n"+strings.Join(states(t, b), "\n"))
		}
	})
	if diff := cmp.Diff(seen["haproxy"], seen["embedded"]); diff != "" {
		t.Errorf("states (-haproxy +embedded):\n%s", diff)
	}
}

func TestPoolIsBounded(t *testing.T) {
	p := &pool{}
	for n := range maxServers {
		if text, ok := p.add(&backendServer{name: fmt.Sprintf("s%d", n), weight: 1}); !ok {
			t.Fatalf("server %d: %s", n, text)
		}
	}
	if text, ok := p.add(&backendServer{name: "more"}); ok || !strings.Contains(text, "1000") {
		t.Errorf("one server more than the bound: %q", text)
	}
	p.each(func(s *backendServer) { s.enter(ready) })
	var last session
	for n := range maxSessions {
		_, s, ok := p.pick(t.Context())
		if !ok {
			t.Fatalf("session %d: no server", n)
		}
		last = s
	}
	if _, _, ok := p.pick(t.Context()); ok {
		t.Error("one session more than the bound")
	}
	last.end()
	if _, _, ok := p.pick(t.Context()); !ok {
		t.Error("a session has ended, and another session is rejected")
	}
}

// TestLineIsBounded checks that a line above the bound is not read to its end.
func TestLineIsBounded(t *testing.T) {
	e, err := StartEmbedded(Options{Dir: folder(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, e)
	conn, err := net.Dial("unix", e.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, strings.Repeat("x", 2*maxLine)) // the connection is closed in the middle
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(conn); len(answer) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %q, %v; want a closed connection", answer, err)
	}
}
