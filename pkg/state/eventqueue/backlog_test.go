package eventqueue

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/podops-dev/podops/test/builders"
)

// few are limits that a test can reach.
var few = limits{entries: 12, bytes: 12 * (entryOverhead + 100), namespaceEntries: 8, rate: 1, burst: 2, totalRate: 100, totalBurst: 100}

func entryOf(namespace, name, eventType string, at time.Time) *entry {
	return &entry{
		series: series{namespace: namespace, kind: "Pod", name: name, uid: types.UID(namespace + name), reason: "Withheld"},
		note:   "note of " + name, eventType: eventType, reason: "Withheld", first: at, last: at, count: 1,
	}
}

// TestTheBacklogIsBounded shows that for any events and any order of sending, the totals are the
// sums and stay within their bounds, in number and in bytes.
func TestTheBacklogIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, now := newBacklog(few), builders.Epoch
		inFlight := []*entry{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 1500).Draw(t, "milliseconds")) * time.Millisecond)
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0, 1:
				e := entryOf(rapid.StringMatching("[a-e]").Draw(t, "namespace"), rapid.StringMatching("[a-p]").Draw(t, "pod"),
					rapid.SampledFrom([]string{corev1.EventTypeNormal, corev1.EventTypeWarning}).Draw(t, "type"), now)
				e.note = string(make([]byte, rapid.IntRange(0, maxNoteBytes).Draw(t, "bytes")))
				b.add(e.series.namespace, e)
			case 2:
				if e, wait := b.take(now); e != nil {
					inFlight = append(inFlight, e)
				} else if wait == 0 && b.entries > 0 {
					t.Fatalf("%d entries wait, without a delay", b.entries)
				}
			case 3:
				if len(inFlight) > 0 {
					b.giveBack(inFlight[0])
					inFlight = inFlight[1:]
				}
			case 4:
				b.dropNamespace(rapid.StringMatching("[a-e]").Draw(t, "gone"))
			}
			check(t, b)
		}
	})
}

func check(t *rapid.T, b *backlog) {
	entries, bytes := 0, 0
	for name, tenant := range b.tenants {
		sum := 0
		for _, e := range tenant.entries {
			sum += e.size()
		}
		if sum != tenant.bytes || len(tenant.entries) != len(tenant.bySeries) || len(tenant.entries) > few.namespaceEntries {
			t.Fatalf("namespace %s: %d entries of %d series in %d bytes, counted as %d", name, len(tenant.entries), len(tenant.bySeries), sum, tenant.bytes)
		}
		entries, bytes = entries+len(tenant.entries), bytes+sum
	}
	if entries != b.entries || bytes != b.bytes || entries > few.entries || bytes > few.bytes || len(b.turns) != len(b.tenants) {
		t.Fatalf("%d entries in %d bytes, counted as %d in %d; %d of %d namespaces take turns", entries, bytes, b.entries, b.bytes, len(b.turns), len(b.tenants))
	}
}

// TestANamespaceHasItsShare shows that a namespace that records without end delays no other one, and
// that a full backlog drops its entries.
func TestANamespaceHasItsShare(t *testing.T) {
	b, now := newBacklog(few), builders.Epoch
	for i := range 100 {
		e := entryOf("loud", fmt.Sprint(i), corev1.EventTypeNormal, now)
		b.add("loud", e)
	}
	for i := range 5 {
		e := entryOf("quiet", fmt.Sprint(i), corev1.EventTypeNormal, now)
		b.add("quiet", e)
	}
	if loud, quiet := len(b.tenants["loud"].entries), len(b.tenants["quiet"].entries); loud != 7 || quiet != 5 {
		t.Errorf("%d entries are left of the loud namespace and %d of the quiet one, want 7 and 5", loud, quiet)
	}
	var order []string
	for range 4 {
		e, _ := b.take(now)
		order = append(order, e.series.namespace)
	}
	if slices.Sort(order); !slices.Equal(order, []string{"loud", "loud", "quiet", "quiet"}) {
		t.Errorf("the first requests are for %v, want two for each", order)
	}
	if e, wait := b.take(now); e != nil || wait != time.Second {
		t.Errorf("beyond the burst: %v after %s, want none for a second", e, wait)
	}
}

// TestWarningsAreDroppedLast shows that of a full namespace the oldest normal event is dropped, and of
// warnings alone the oldest.
func TestWarningsAreDroppedLast(t *testing.T) {
	b, now := newBacklog(few), builders.Epoch
	add := func(name, eventType string) { b.add("a", entryOf("a", name, eventType, now)) }
	names := func() (names string) {
		for _, e := range b.tenants["a"].entries {
			names += e.series.name
		}
		return names
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		add(name, corev1.EventTypeWarning)
		add("n"+name, corev1.EventTypeNormal)
	}
	for _, tc := range []struct{ add, want string }{
		{"e", "abnbcncdnde"}, {"f", "abcncdndef"}, {"g", "abcdndefg"}, {"h", "abcdefgh"}, {"i", "bcdefghi"},
	} {
		add(tc.add, corev1.EventTypeWarning)
		if got := names(); got != tc.want {
			t.Errorf("after %s: %s, want %s", tc.add, got, tc.want)
		}
	}
}

// TestIdleNamespacesAreRemoved shows that a namespace with nothing to send is kept only until its
// burst is full again.
func TestIdleNamespacesAreRemoved(t *testing.T) {
	b, now := newBacklog(limits{entries: 10000, bytes: 1 << 30, namespaceEntries: 10, rate: 1, burst: 2, totalRate: 1e6, totalBurst: 1e6}), builders.Epoch
	for i := range 1000 {
		b.add(fmt.Sprint(i), entryOf(fmt.Sprint(i), "a", corev1.EventTypeNormal, now))
	}
	for e, _ := b.take(now); e != nil; e, _ = b.take(now) {
	}
	if len(b.tenants) != 1000 {
		t.Errorf("%d namespaces are kept whose burst is not full, want 1000", len(b.tenants))
	}
	b.take(now.Add(2 * time.Second))
	if len(b.tenants) != 0 || len(b.turns) != 0 {
		t.Errorf("%d namespaces are kept", len(b.tenants))
	}
}

// TestEntriesAreWeighed shows that an entry takes no more memory than it counts with.
func TestEntriesAreWeighed(t *testing.T) {
	const count = 20000
	b := newBacklog(limits{entries: count, bytes: 1 << 30, namespaceEntries: count, rate: 1, burst: 1, totalRate: 1, totalBurst: 1})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range count {
		e := entryOf("namespace", fmt.Sprintf("a-deployment-of-some-length-%08d", i), corev1.EventTypeNormal, builders.Epoch)
		e.regarding = corev1.ObjectReference{Name: e.series.name, UID: e.series.uid}
		e.related = &corev1.ObjectReference{}
		e.note = string(make([]byte, 300))
		b.add("namespace", e)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if took := int64(after.HeapAlloc) - int64(before.HeapAlloc); took > int64(b.bytes) {
		t.Errorf("%d entries take %d bytes, and count with %d", count, took, b.bytes)
	}
	runtime.KeepAlive(b)
}
