package audit

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	created = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","stage":"ResponseComplete","verb":"create",` +
		`"user":{"username":"alice","groups":["x"]},"userAgent":"kubectl/v1","objectRef":{"resource":"pods","namespace":"default","name":"web-0","apiVersion":"v1"},` +
		`"responseStatus":{"metadata":{},"code":201},"requestReceivedTimestamp":"2026-01-02T03:04:05.600000Z","stageTimestamp":"2026-01-02T03:04:05.850000Z"}` + "\n"
	received = `{"stage":"RequestReceived","verb":"create","user":{"username":"alice"}}` + "\n"
	refused  = `{"stage":"ResponseComplete","verb":"update","user":{"username":"bob"},` +
		`"objectRef":{"apiGroup":"apps","resource":"deployments","subresource":"scale","namespace":"shop","name":"web"},` +
		`"responseStatus":{"code":403,"message":"no"}}` + "\n"
)

var (
	createdEvent = Event{
		Time: time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC), Took: 250 * time.Millisecond, User: "alice", UserAgent: "kubectl/v1", Verb: "create",
		Resource: "pods", Namespace: "default", Name: "web-0", Code: 201,
	}
	refusedEvent = Event{
		User: "bob", Verb: "update", Group: "apps", Resource: "deployments", Subresource: "scale",
		Namespace: "shop", Name: "web", Code: 403, Message: "no",
	}
)

func TestFailedOpen(t *testing.T) {
	open := strings.Replace(created, `"level":"Metadata"`, `"annotations":{"failed-open.validating.webhook.admission.k8s.io/round_0_index_0":"pods-delete"}`, 1)
	for name, tc := range map[string]struct {
		line string
		want bool
	}{"failed open": {open, true}, "answered": {created, false}} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.log")
			if err := os.WriteFile(path, []byte(tc.line), 0o600); err != nil {
				t.Fatal(err)
			}
			log, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			events, err := log.All()
			if err != nil || len(events) != 1 || events[0].FailedOpen != tc.want {
				t.Errorf("got %+v, %v", events, err)
			}
		})
	}
}

func TestSince(t *testing.T) {
	tests := map[string]struct {
		content string
		mark    Mark
		want    Events
	}{
		"an empty log has no events":                 {"", 0, nil},
		"every line is an event":                     {created + refused, 0, Events{createdEvent, refusedEvent}},
		"a request counts once, when it is complete": {received + created, 0, Events{createdEvent}},
		"events before the mark are left out":        {created + refused, Mark(len(created)), Events{refusedEvent}},
		"at the end there are no events":             {created, Mark(len(created)), nil},
		"a line without its end waits":               {created + refused[:len(refused)-1], 0, Events{createdEvent}},
		"half a line waits":                          {created + refused[:20], 0, Events{createdEvent}},
		"half a line, and nothing else, waits too":   {refused[:20], 0, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := open(t, tc.content).Since(tc.mark)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSinceRejectsOtherContent(t *testing.T) {
	if got, err := open(t, "hello\n").All(); err == nil {
		t.Errorf("want an error, got %v", got)
	}
}

func TestOpenWithoutALog(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("want %v, got %v", fs.ErrNotExist, err)
	}
}

// TestMarkIsBeforeALineThatIsNotComplete checks that a mark that is taken while a line is
// being written does not lose that line.
func TestMarkIsBeforeALineThatIsNotComplete(t *testing.T) {
	log := open(t, created+refused[:30])
	mark, err := log.Mark()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(log.path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(refused[30:]); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := log.Since(mark)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Events{refusedEvent}, got); diff != "" {
		t.Errorf("events since the mark (-want +got):\n%s", diff)
	}
}

func open(t *testing.T, content string) *Log {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	log, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return log
}
