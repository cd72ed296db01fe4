package webhookclient

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

func TestAHostThatHasJustFailedGetsOneCallAtATime(t *testing.T) {
	turns := newTurns(PoolOptions{}.withDefaults())
	for i := range 10 {
		turns.add(callOf(fmt.Sprint(i), "shop", "h"))
	}
	takeAll := func() (taken []*job) {
		for {
			next, failure := turns.take(noon, false)
			if next == nil {
				return taken
			}
			if failure != nil {
				t.Fatal(failure)
			}
			taken = append(taken, next)
		}
	}
	running := takeAll()
	if len(running) != 4 {
		t.Fatalf("%d calls run at once, want 4", len(running))
	}
	for _, ended := range running {
		turns.end(ended, fail(ClassTimeout, "no answer"), noon)
	}
	if running = takeAll(); len(running) != 1 {
		t.Fatalf("%d calls run at once after a failure, want 1", len(running))
	}
	turns.end(running[0], nil, noon)
	if running = takeAll(); len(running) != 4 {
		t.Errorf("%d calls run at once after an answer, want 4", len(running))
	}
}

// compare turns without calls.
func compare() cmp.Options {
	return cmp.Options{cmp.AllowUnexported(turns{}), cmpopts.IgnoreFields(turns{}, "options"), cmpopts.EquateEmpty()}
}

func TestNamespacesTakeTurns(t *testing.T) {
	turns := newTurns(PoolOptions{PerHost: 1}.withDefaults())
	for i := range 3 {
		turns.add(callOf(fmt.Sprint("a", i), "loud", "h"))
	}
	turns.add(callOf("b", "quiet", "h"))
	var order []string
	for range 4 {
		next, _ := turns.take(noon, false)
		order = append(order, next.call.Key)
		turns.end(next, nil, noon)
	}
	if diff := cmp.Diff([]string{"a0", "b", "a1", "a2"}, order); diff != "" {
		t.Errorf("order differs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(newTurns(turns.options), turns, compare()); diff != "" {
		t.Errorf("something is left (-want +got):\n%s", diff)
	}
}

// TestTargetsThatOnlyFailAreBounded in each namespace and in all, and the namespace that has the most
// makes room.
func TestTargetsThatOnlyFailAreBounded(t *testing.T) {
	turns := newTurns(PoolOptions{}.withDefaults())
	fails := func(namespace string, targets int) {
		for i := range targets {
			turns.add(callOf("a", namespace, fmt.Sprintf("h%d", i)))
			taken, _ := turns.take(noon, false)
			turns.end(taken, fail(ClassDNS, "no such host"), noon.Add(time.Duration(i)*time.Second))
		}
	}
	fails("quiet", 2)
	fails("loud", 2*maxTargetsPerNamespace)
	if own := len(turns.tenants["loud"].targets); own != maxTargetsPerNamespace {
		t.Errorf("%d targets of one namespace are remembered, want %d", own, maxTargetsPerNamespace)
	}
	if turns.known(callOf("a", "loud", "h0").target()) != nil {
		t.Error("the target that was not used for the longest time is remembered")
	}
	for i := range maxTargets / maxTargetsPerNamespace {
		fails(fmt.Sprint("ns", i), maxTargetsPerNamespace)
	}
	if turns.targets > maxTargets {
		t.Errorf("%d targets are remembered, want at most %d", turns.targets, maxTargets)
	}
	if own := len(turns.tenants["quiet"].targets); own != 2 {
		t.Errorf("a namespace with few targets has %d left, want 2", own)
	}
}

// TestANamespaceFindsAPlaceBesideAllOthers: with calls that hang, others use up the workers, the host
// and the queue, and one more namespace is served all the same.
func TestANamespaceFindsAPlaceBesideAllOthers(t *testing.T) {
	turns := newTurns(PoolOptions{}.withDefaults())
	for i := range 12 {
		for call := range turns.options.QueuePerNamespace + 1 {
			if namespace := fmt.Sprint("loud", i); turns.takes(namespace, 1) {
				turns.add(callOf(fmt.Sprint(call), namespace, "h"))
			}
		}
	}
	if limit := turns.options.Queue + 12*freeQueue; turns.queued < turns.options.Queue || turns.queued > limit {
		t.Fatalf("%d calls wait, want from %d to %d", turns.queued, turns.options.Queue, limit)
	}
	running := 0
	for taken, _ := turns.take(noon, false); taken != nil; taken, _ = turns.take(noon, false) {
		running++
	}
	if limit := turns.options.PerHostInAll + 12; running < turns.options.PerHostInAll || running > limit {
		t.Fatalf("%d calls to one host run, want from %d to %d", running, turns.options.PerHostInAll, limit)
	}
	if !turns.takes("quiet", 1) {
		t.Fatal("there is no place in the queue")
	}
	turns.add(callOf("quiet", "quiet", "h"))
	if taken, _ := turns.take(noon, false); taken == nil || taken.call.Key != "quiet" {
		t.Errorf("the next call is %+v, want that of the quiet namespace", taken)
	}
}

// TestTheQueueIsBoundedInBytes of each namespace.
func TestTheQueueIsBoundedInBytes(t *testing.T) {
	turns := newTurns(PoolOptions{}.withDefaults())
	call := callOf("a", "loud", "h")
	call.Post.Request.Resources = []Resource{PodResource("web-0", "uid", map[string]string{"manifest": strings.Repeat("x", 1<<20)})}
	for turns.takes("loud", call.bytes()) {
		turns.add(call)
	}
	if most := turns.options.BytesPerNamespace; turns.queuedBytes > most || turns.queuedBytes < most-2<<20 {
		t.Errorf("%d bytes wait, want at most %d and not much less", turns.queuedBytes, most)
	}
	if !turns.takes("quiet", call.bytes()) {
		t.Error("another namespace has no place")
	}
}

// TestNoNamespaceChangesTheBreakerOfAnother: whatever happens to the calls of one namespace, in which
// order, those of another meet the breaker that their own calls made.
func TestNoNamespaceChangesTheBreakerOfAnother(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		together, alone := newTurns(PoolOptions{}.withDefaults()), newTurns(PoolOptions{}.withDefaults())
		now := noon
		run := func(turns *turns, call Call, failure *Failure) bool {
			turns.add(call)
			taken, open := turns.take(now, false)
			if open == nil {
				turns.end(taken, failure, now)
			}
			return open == nil
		}
		for step := range rapid.IntRange(0, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "seconds")) * time.Second)
			var failure *Failure
			if rapid.IntRange(0, 3).Draw(t, "fails") > 0 {
				failure = fail(ClassRefused, "refused")
			}
			if rapid.Bool().Draw(t, "loud") {
				run(together, callOf("a", "loud", "h"), failure)
				continue
			}
			call := callOf("b", "quiet", "h")
			if with, without := run(together, call, failure), run(alone, call, failure); with != without {
				t.Fatalf("step %d: the call is made: %v beside the other namespace, %v alone", step, with, without)
			}
		}
	})
}
