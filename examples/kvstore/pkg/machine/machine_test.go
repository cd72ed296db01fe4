package machine

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
	"pgregory.net/rapid"
)

func open(t *testing.T) *Machine {
	t.Helper()
	m, err := Open(filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// apply applies commands at indices from the first on.
func apply(t interface{ Fatal(...any) }, m *Machine, first uint64, commands ...Command) []Result {
	var logs []*raft.Log
	for i, c := range commands {
		data, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		logs = append(logs, &raft.Log{Index: first + uint64(i), Type: raft.LogCommand, Data: data})
	}
	var results []Result
	for _, r := range m.ApplyBatch(logs) {
		results = append(results, r.(Result))
	}
	return results
}

func revision(n uint64) *uint64 { return &n }

func TestTransition(t *testing.T) {
	const index = 7
	v := func(s string) []byte { return []byte(s) }
	for name, test := range map[string]struct {
		command Command
		current Entry
		usage   Usage
		want    Entry
		outcome Outcome
	}{
		"put a new key":                  {Command{Op: Put, Key: "k", Value: v("a")}, Entry{}, Usage{}, Entry{index, v("a")}, Applied},
		"put an old key":                 {Command{Op: Put, Key: "k", Value: v("a")}, Entry{3, v("b")}, Usage{1, 2}, Entry{index, v("a")}, Applied},
		"append":                         {Command{Op: Append, Key: "k", Value: v("b")}, Entry{3, v("a")}, Usage{1, 2}, Entry{index, v("ab")}, Applied},
		"append to no key":               {Command{Op: Append, Key: "k", Value: v("b")}, Entry{}, Usage{}, Entry{index, v("b")}, Applied},
		"append beyond the bound":        {Command{Op: Append, Key: "k", Value: v("b")}, Entry{3, make([]byte, MaxValueBytes)}, Usage{1, 2}, Entry{3, make([]byte, MaxValueBytes)}, TooLarge},
		"delete":                         {Command{Op: Delete, Key: "k"}, Entry{3, v("a")}, Usage{1, 2}, Entry{}, Applied},
		"the expected revision":          {Command{Op: Put, Key: "k", Value: v("b"), If: revision(3)}, Entry{3, v("a")}, Usage{1, 2}, Entry{index, v("b")}, Applied},
		"another revision":               {Command{Op: Put, Key: "k", Value: v("b"), If: revision(2)}, Entry{3, v("a")}, Usage{1, 2}, Entry{3, v("a")}, Conflict},
		"a key that must not exist":      {Command{Op: Put, Key: "k", If: revision(0)}, Entry{3, v("a")}, Usage{1, 2}, Entry{3, v("a")}, Conflict},
		"a full store, a new key":        {Command{Op: Put, Key: "k", Value: v("b")}, Entry{}, Usage{Keys: MaxKeys}, Entry{}, Full},
		"a full store, a longer value":   {Command{Op: Put, Key: "k", Value: v("bb")}, Entry{3, v("a")}, Usage{1, MaxBytes}, Entry{3, v("a")}, Full},
		"a full store, a shorter value":  {Command{Op: Put, Key: "k", Value: v("b")}, Entry{3, v("aa")}, Usage{MaxKeys, MaxBytes}, Entry{index, v("b")}, Applied},
		"a full store, a key is deleted": {Command{Op: Delete, Key: "k"}, Entry{3, v("aa")}, Usage{MaxKeys, MaxBytes}, Entry{}, Applied},
	} {
		t.Run(name, func(t *testing.T) {
			got, _, result := test.command.transition(index, test.current, test.usage)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("entry (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(Result{Outcome: test.outcome, Revision: test.want.Revision}, result); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

func TestValidateBoundsCommands(t *testing.T) {
	for name, c := range map[string]Command{
		"no operation":          {Key: "k"},
		"no key":                {Op: Put},
		"a long key":            {Op: Put, Key: strings.Repeat("k", MaxKeyBytes+1)},
		"a key that is no text": {Op: Put, Key: "\xff"},
		"a long value":          {Op: Put, Key: "k", Value: make([]byte, MaxValueBytes+1)},
		"a long client":         {Op: Put, Key: "k", Client: strings.Repeat("c", MaxClientBytes+1), Seq: 1},
		"a client, no number":   {Op: Put, Key: "k", Client: "c"},
		"a number, no client":   {Op: Put, Key: "k", Seq: 1},
	} {
		if err := c.Validate(); err == nil {
			t.Errorf("%s is valid", name)
		}
	}
	c := Command{Op: Put, Key: strings.Repeat("k", MaxKeyBytes), Value: make([]byte, MaxValueBytes), Client: "c", Seq: 1}
	if err := c.Validate(); err != nil {
		t.Errorf("a command at the bounds: %v", err)
	}
}

func TestARepeatedRequestIsAppliedOnce(t *testing.T) {
	m := open(t)
	add := func(client string, seq uint64) Command {
		return Command{Op: Append, Key: "k", Value: []byte(client), Client: client, Seq: seq}
	}
	got := apply(t, m, 1, add("a", 1), add("a", 1), add("b", 1), add("a", 1), add("a", 3), add("a", 2), add("c", 2))
	want := []Result{
		{Applied, 1}, {Applied, 1}, {Applied, 3}, {Applied, 1}, {Applied, 5},
		{Outcome: Expired}, // a later request of the client was applied
		{Outcome: Expired}, // the client is unknown, so its first request may have been forgotten
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if entry, err := m.Get("k"); err != nil || string(entry.Value) != "aba" {
		t.Errorf("got %q, %v; want aba", entry.Value, err)
	}
}

func TestTheOldestClientIsForgotten(t *testing.T) {
	m := open(t)
	var commands []Command
	for n := range MaxClients {
		commands = append(commands, Command{Op: Put, Key: "k", Client: fmt.Sprint(n), Seq: 1})
	}
	apply(t, m, 1, commands...)
	got := apply(t, m, MaxClients+1,
		Command{Op: Put, Key: "k", Client: "0", Seq: 2},   // client 1 is the oldest now
		Command{Op: Put, Key: "k", Client: "new", Seq: 1}, // client 1 is forgotten
		Command{Op: Put, Key: "k", Client: "0", Seq: 2},
		Command{Op: Put, Key: "k", Client: "1", Seq: 2},
	)
	want := []Result{{Applied, MaxClients + 1}, {Applied, MaxClients + 2}, {Applied, MaxClients + 1}, {Outcome: Expired}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
}

func TestCommandsOfTheLogAreAppliedOnceAcrossRestarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	for range 2 {
		m, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		apply(t, m, 1, Command{Op: Append, Key: "k", Value: []byte("a")}, Command{Op: Append, Key: "k", Value: []byte("b")})
		entry, err := m.Get("k")
		if err != nil || string(entry.Value) != "ab" {
			t.Errorf("got %q, %v; want ab", entry.Value, err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUsageIsThatOfTheKeys compares the running count with the keys, after any commands.
func TestUsageIsThatOfTheKeys(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "m")
		if err != nil {
			r.Fatal(err)
		}
		m, err := Open(filepath.Join(dir, "state.db"))
		if err != nil {
			r.Fatal(err)
		}
		defer m.Close()
		commands := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) Command {
			return Command{
				Op:    rapid.SampledFrom([]Op{Put, Append, Delete}).Draw(r, "op"),
				Key:   rapid.SampledFrom([]string{"a", "bb", "ccc"}).Draw(r, "key"),
				Value: rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(r, "value"),
			}
		}), 1, 20).Draw(r, "commands")
		apply(r, m, 1, commands...)
		var want Usage
		for _, key := range []string{"a", "bb", "ccc"} {
			entry, err := m.Get(key)
			if err != nil {
				r.Fatal(err)
			}
			want = want.after(key, Entry{}, entry)
		}
		got, applied, err := m.State()
		if err != nil || got != want || applied != uint64(len(commands)) {
			r.Fatalf("usage %+v at index %d, %v; want %+v at %d", got, applied, err, want, len(commands))
		}
	})
}

func TestRestoreReplacesTheState(t *testing.T) {
	from, to := open(t), open(t)
	apply(t, from, 1, Command{Op: Put, Key: "k", Value: []byte("from")})
	apply(t, to, 1, Command{Op: Put, Key: "k", Value: []byte("to")}, Command{Op: Put, Key: "other"})
	snapshot := backup(t, from)
	if err := to.Restore(io.NopCloser(bytes.NewReader(snapshot))); err != nil {
		t.Fatal(err)
	}
	entry, err := to.Get("k")
	if err != nil || string(entry.Value) != "from" {
		t.Errorf("got %q, %v", entry.Value, err)
	}
	if entry, err := to.Get("other"); err != nil || entry.Revision != 0 {
		t.Errorf("a key that the snapshot lacks: %+v, %v", entry, err)
	}
}

func TestRestoreOfACutOffSnapshotKeepsTheState(t *testing.T) {
	m := open(t)
	apply(t, m, 1, Command{Op: Put, Key: "k", Value: []byte("v")})
	snapshot := backup(t, m)
	for _, cut := range []int{0, 100, len(snapshot) / 2} {
		if err := m.Restore(io.NopCloser(bytes.NewReader(snapshot[:cut]))); err == nil {
			t.Errorf("a snapshot of %d bytes of %d was restored", cut, len(snapshot))
		}
		if entry, err := m.Get("k"); err != nil || string(entry.Value) != "v" {
			t.Fatalf("got %q, %v", entry.Value, err)
		}
	}
}

// TestASnapshotIsOfOneMoment applies commands between its begin and its end.
func TestASnapshotIsOfOneMoment(t *testing.T) {
	m := open(t)
	apply(t, m, 1, Command{Op: Put, Key: "k", Value: []byte("before")})
	view, err := m.View()
	if err != nil {
		t.Fatal(err)
	}
	defer view.Release()
	apply(t, m, 2, Command{Op: Put, Key: "k", Value: []byte("after")})
	var data bytes.Buffer
	if n, err := view.WriteTo(&data); err != nil || n != view.Size() {
		t.Fatalf("wrote %d of %d bytes: %v", n, view.Size(), err)
	}
	restored := open(t)
	if err := restored.Restore(io.NopCloser(&data)); err != nil {
		t.Fatal(err)
	}
	if entry, err := restored.Get("k"); err != nil || string(entry.Value) != "before" {
		t.Errorf("got %q, %v; want the value at the begin", entry.Value, err)
	}
}

func backup(t *testing.T, m *Machine) []byte {
	t.Helper()
	view, err := m.View()
	if err != nil {
		t.Fatal(err)
	}
	defer view.Release()
	var data bytes.Buffer
	if _, err := view.WriteTo(&data); err != nil {
		t.Fatal(err)
	}
	return data.Bytes()
}
