package load

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/go-cmp/cmp"
)

func at(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }

func wrote(token string, from, to int) Operation {
	return Operation{Kind: Write, Key: "k", Token: token, Start: at(from), End: at(to), Outcome: Succeeded}
}

func read(value string, from, to int) Operation {
	return Operation{Kind: Read, Key: "k", Value: value, Start: at(from), End: at(to), Outcome: Succeeded}
}

func open(o Operation) Operation {
	o.Outcome = Open
	return o
}

func TestCheck(t *testing.T) {
	for name, test := range map[string]struct {
		history []Operation
		want    porcupine.CheckResult
	}{
		"a read after a write":                {[]Operation{wrote("a", 0, 1), read("a;", 2, 3)}, porcupine.Ok},
		"a read at the time of a write":       {[]Operation{wrote("a", 0, 5), read("", 1, 2)}, porcupine.Ok},
		"a stale read":                        {[]Operation{wrote("a", 0, 1), read("", 2, 3)}, porcupine.Illegal},
		"a read that goes back":               {[]Operation{wrote("a", 0, 9), read("a;", 1, 2), read("", 3, 4)}, porcupine.Illegal},
		"a write that is lost later":          {[]Operation{wrote("a", 0, 1), read("a;", 2, 3), wrote("b", 4, 5), read("b;", 6, 7)}, porcupine.Illegal},
		"a write that is applied twice":       {[]Operation{wrote("a", 0, 1), read("a;a;", 2, 3)}, porcupine.Illegal},
		"an open write that appears later":    {[]Operation{open(wrote("a", 0, 1)), read("", 2, 3), read("a;", 4, 5)}, porcupine.Ok},
		"an open write that never appears":    {[]Operation{open(wrote("a", 0, 1)), read("", 2, 3), read("", 4, 5)}, porcupine.Ok},
		"an open write that disappears again": {[]Operation{open(wrote("a", 0, 1)), read("a;", 2, 3), read("", 4, 5)}, porcupine.Illegal},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Check(test.history, time.Minute); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// TestCheckOfManyWritesAtATime shows that the check does not try each order of writes at the same time.
func TestCheckOfManyWritesAtATime(t *testing.T) {
	const writes = 200
	var history []Operation
	value := ""
	for n := range writes {
		token := fmt.Sprint((7 * n) % writes)
		history = append(history, wrote(token, 0, 10))
		value += token + separator
	}
	slices.Reverse(history)
	history = append(history, open(wrote("never", 0, 10)))
	for name, test := range map[string]struct {
		last Operation
		want porcupine.CheckResult
	}{
		"all are read": {read(value, 20, 21), porcupine.Ok},
		"one is lost":  {read(value[:strings.LastIndex(value[:len(value)-1], separator)+1], 20, 21), porcupine.Illegal},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Check(append(slices.Clone(history), test.last), time.Minute); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestReportCountsLostAndRepeatedWrites(t *testing.T) {
	h := newHistory()
	for _, o := range []Operation{wrote("a", 0, 1), wrote("b", 2, 3), wrote("c", 4, 5), open(wrote("d", 6, 7))} {
		h.record(o)
	}
	r := h.report(map[string]string{"k": "a;c;c;"}, time.Minute)
	if r.LostWrites != 1 || r.RepeatedWrites != 1 || r.Writes.Succeeded != 3 || r.Writes.Failed != 1 {
		t.Errorf("got %+v", r)
	}
	if diff := cmp.Diff([]string{"lost: k b", "repeated: k c"}, r.Examples); diff != "" {
		t.Errorf("examples (-want +got):\n%s", diff)
	}
}

func TestFailuresBelongToTheNearestLeaderChange(t *testing.T) {
	h := newHistory()
	for _, s := range []success{{2, "kv-0", at(0)}, {2, "kv-0", at(100)}, {4, "kv-1", at(900)}, {4, "kv-1", at(20_000)}, {5, "kv-2", at(20_050)}} {
		h.succeed(s, "1.0")
	}
	for _, ms := range []int{50, 500, 901, 10_000, 20_020} {
		h.fail(Failure{Kind: Read, Reason: "connection refused", Detail: "d", At: at(ms)})
	}
	r := h.report(nil, time.Minute)
	wantChanges := []LeaderChange{
		{From: at(100), To: at(900), OldLeader: "kv-0", NewLeader: "kv-1", Term: 4, Millis: 800},
		{From: at(20_000), To: at(20_050), OldLeader: "kv-1", NewLeader: "kv-2", Term: 5, Millis: 50},
	}
	if diff := cmp.Diff(wantChanges, r.LeaderChanges); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	counts := map[uint64]int{}
	for _, f := range r.Failures {
		counts[f.LeaderChange] = f.Count
	}
	if diff := cmp.Diff(map[uint64]int{0: 1, 4: 3, 5: 1}, counts); diff != "" {
		t.Errorf("failures by change (-want +got):\n%s", diff)
	}
	if r.Reads.FailedAttempts != 5 {
		t.Errorf("%d failed attempts, want 5", r.Reads.FailedAttempts)
	}
}

func TestFailuresAreBounded(t *testing.T) {
	h := newHistory()
	for range maxFailures + 3 {
		h.fail(Failure{Kind: Read, Reason: "r", At: at(0)})
	}
	if r := h.report(nil, time.Minute); r.DroppedFailures != 3 || r.Reads.FailedAttempts != maxFailures {
		t.Errorf("%d dropped, %d kept", r.DroppedFailures, r.Reads.FailedAttempts)
	}
}
