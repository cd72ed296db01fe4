package approvals

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/podops-dev/podops/test/await"
)

func TestTheLogDropsTheOldestEntries(t *testing.T) {
	j := newJournal()
	for i := range maxEntries + 10 {
		j.add(Entry{})
		j.posted(fmt.Sprint(i), "shop")
	}
	entries := j.since(0)
	if len(entries) != maxEntries || entries[0].Sequence != 11 || entries[len(entries)-1].Sequence != maxEntries+10 {
		t.Errorf("there are %d entries from %d on", len(entries), entries[0].Sequence)
	}
	if later := j.since(maxEntries); len(later) != 10 || later[0].Sequence != maxEntries+1 {
		t.Errorf("the last 10 are %d from %d on", len(later), later[0].Sequence)
	}
	if len(j.traces) != maxTraces || len(j.oldest) != maxTraces || j.traces["0"].posts != 0 {
		t.Errorf("%d traceIds are counted, the first of them %d times", len(j.traces), j.traces["0"].posts)
	}
}

// large returns an entry of more than a MiB.
func large(trace string) Entry {
	return Entry{TraceID: trace, Path: manualPath, Pods: []Pod{{Name: "a", Parameters: map[string]string{"text": strings.Repeat("x", 1<<20)}}}}
}

func TestTheStateIsBoundedInBytes(t *testing.T) {
	s := New(nil)
	for i := range 100 {
		entry := large(fmt.Sprint(i))
		s.journal.add(entry)
		s.begin(entry, settings{})
	}
	if count := len(s.Log("")); count >= 32 || count < 30 {
		t.Errorf("%d entries of a MiB are kept", count)
	}
	if count := len(s.tasks); count >= 32 || count < 30 || s.tasks[count-1].post.TraceID != "99" {
		t.Errorf("%d tasks of a MiB are kept", count)
	}
}

func TestTasksAreBounded(t *testing.T) {
	s := New(nil)
	for i := range maxTasks + 10 {
		s.begin(Entry{TraceID: fmt.Sprint(i), Path: manualPath, Pods: []Pod{{Name: "a"}}}, settings{})
	}
	if len(s.tasks) != maxTasks || s.tasks[0].post.TraceID != "10" {
		t.Errorf("%d tasks are kept, the oldest is %s", len(s.tasks), s.tasks[0].post.TraceID)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := newBounded(inner, 1)
	for range 2 {
		client, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
	}
	first, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan error, 1)
	accept := func() {
		connection, err := listener.Accept()
		if err == nil {
			defer connection.Close()
		}
		accepted <- err
	}
	go accept()
	select {
	case err := <-accepted:
		t.Fatal("a second Accept has returned:", err)
	case <-time.After(50 * time.Millisecond):
	}
	if first.Close() != nil || await.Receive(t, "the second connection", accepted) != nil {
		t.Error("the second connection is not accepted when the first is closed")
	}
	go accept()
	if listener.Close() != nil || await.Receive(t, "Accept returns", accepted) == nil {
		t.Error("Accept does not return when the listener is closed")
	}
}
