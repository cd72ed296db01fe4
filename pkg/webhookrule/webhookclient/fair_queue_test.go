package webhookclient

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestAHostThatHasJustFailedGetsOneCallAtATime(t *testing.T) {
	queue := newFairQueue(PoolOptions{}.withDefaults())
	for i := range 10 {
		queue.add(callOf(fmt.Sprint(i), "shop", "h"))
	}
	takeAll := func() (taken []*job) {
		for {
			next, failure := queue.take(noon, false)
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
		queue.end(ended, fail(ClassTimeout, "no answer"), noon)
	}
	if running = takeAll(); len(running) != 1 {
		t.Fatalf("%d calls run at once after a failure, want 1", len(running))
	}
	queue.end(running[0], nil, noon)
	if running = takeAll(); len(running) != 4 {
		t.Errorf("%d calls run at once after an answer, want 4", len(running))
	}
}

func TestNamespacesAreServedInRoundRobin(t *testing.T) {
	queue := newFairQueue(PoolOptions{PerHost: 1}.withDefaults())
	for i := range 3 {
		queue.add(callOf(fmt.Sprint("a", i), "loud", "h"))
	}
	queue.add(callOf("b", "quiet", "h"))
	var order []string
	for range 4 {
		next, _ := queue.take(noon, false)
		order = append(order, next.call.Key)
		queue.end(next, nil, noon)
	}
	if diff := cmp.Diff([]string{"a0", "b", "a1", "a2"}, order); diff != "" {
		t.Errorf("order differs (-want +got):\n%s", diff)
	}
	if left := queue.queued + queue.running + len(queue.order) + len(queue.hosts); left != 0 {
		t.Errorf("something is left: %+v", queue)
	}
	for _, namespace := range []string{"loud", "quiet"} {
		if at := queue.known(callOf("a", namespace, "h").target()); at == nil || !at.idle() {
			t.Errorf("target of %s: %+v, want one without calls", namespace, at)
		}
	}
}

// TestAnswersDoNotWaitForCallsThatHang checks that a target which has answered is called while hanging calls of its
// own namespace and of others use up the workers, with one call of a namespace at once.
func TestAnswersDoNotWaitForCallsThatHang(t *testing.T) {
	queue := newFairQueue(PoolOptions{}.withDefaults())
	takeAll := func() (taken []*job) {
		for next, _ := queue.take(noon, false); next != nil; next, _ = queue.take(noon, false) {
			taken = append(taken, next)
		}
		return taken
	}
	namespaces := []string{"shop", "bank", "post"}
	for _, namespace := range namespaces {
		queue.add(callOf("first", namespace, "answers"))
		for _, first := range takeAll() {
			queue.end(first, nil, noon)
		}
	}
	for _, namespace := range namespaces {
		for i := range 10 * queue.options.PerHost {
			queue.add(callOf(fmt.Sprint("hangs", i), namespace, fmt.Sprint("silent", i%10)))
		}
	}
	takeAll()
	if queue.running < queue.options.Workers {
		t.Fatalf("%d calls hang, want all %d workers in use", queue.running, queue.options.Workers)
	}
	for _, namespace := range namespaces {
		for i := range 3 {
			queue.add(callOf(fmt.Sprint("answers", i), namespace, "answers"))
			queue.add(callOf(fmt.Sprint("unknown", i), namespace, "unknown"))
		}
	}
	for round := range 3 {
		var got []string
		taken := takeAll()
		for _, next := range taken {
			got = append(got, next.at.key.namespace+" "+next.call.Key)
			queue.end(next, nil, noon)
		}
		slices.Sort(got)
		want := []string{fmt.Sprint("bank answers", round), fmt.Sprint("post answers", round), fmt.Sprint("shop answers", round)}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("calls of round %d (-want +got):\n%s", round, diff)
		}
	}
}

// TestTargetsThatOnlyFailAreBounded checks the bound in each namespace and in all, and that the
// namespace with the most targets loses one first.
func TestTargetsThatOnlyFailAreBounded(t *testing.T) {
	queue := newFairQueue(PoolOptions{}.withDefaults())
	fails := func(namespace string, targets int) {
		for i := range targets {
			queue.add(callOf("a", namespace, fmt.Sprintf("h%d", i)))
			taken, _ := queue.take(noon, false)
			queue.end(taken, fail(ClassDNS, "no such host"), noon.Add(time.Duration(i)*time.Second))
		}
	}
	fails("quiet", 2)
	fails("loud", 2*maxTargetsPerNamespace)
	if own := len(queue.tenants["loud"].targets); own != maxTargetsPerNamespace {
		t.Errorf("%d targets of one namespace are remembered, want %d", own, maxTargetsPerNamespace)
	}
	if queue.known(callOf("a", "loud", "h0").target()) != nil {
		t.Error("the target that was not used for the longest time is remembered")
	}
	for i := range maxTargets / maxTargetsPerNamespace {
		fails(fmt.Sprint("ns", i), maxTargetsPerNamespace)
	}
	if queue.targets > maxTargets {
		t.Errorf("%d targets are kept, want at most %d", queue.targets, maxTargets)
	}
	if own := len(queue.tenants["quiet"].targets); own != 2 {
		t.Errorf("a namespace with few targets has %d left, want 2", own)
	}
}

// TestANamespaceFindsAPlaceBesideAllOthers checks that one more namespace is served while hanging
// calls of others use up the workers, the host and the queue.
func TestANamespaceFindsAPlaceBesideAllOthers(t *testing.T) {
	queue := newFairQueue(PoolOptions{}.withDefaults())
	for i := range 12 {
		for call := range queue.options.QueuePerNamespace + 1 {
			if namespace := fmt.Sprint("loud", i); queue.takes(namespace, 1) {
				queue.add(callOf(fmt.Sprint(call), namespace, "h"))
			}
		}
	}
	if limit := queue.options.Queue + 12*freeQueue; queue.queued < queue.options.Queue || queue.queued > limit {
		t.Fatalf("%d calls wait, want from %d to %d", queue.queued, queue.options.Queue, limit)
	}
	running := 0
	for taken, _ := queue.take(noon, false); taken != nil; taken, _ = queue.take(noon, false) {
		running++
	}
	if limit := queue.options.PerHostInAll + 12; running < queue.options.PerHostInAll || running > limit {
		t.Fatalf("%d calls to one host run, want from %d to %d", running, queue.options.PerHostInAll, limit)
	}
	if !queue.takes("quiet", 1) {
		t.Fatal("there is no place in the queue")
	}
	queue.add(callOf("quiet", "quiet", "h"))
	if taken, _ := queue.take(noon, false); taken == nil || taken.call.Key != "quiet" {
		t.Errorf("the next call is %+v, want that of the quiet namespace", taken)
	}
}

// TestTheQueueIsBoundedInBytes checks the bound of each namespace.
func TestTheQueueIsBoundedInBytes(t *testing.T) {
	queue := newFairQueue(PoolOptions{}.withDefaults())
	call := callOf("a", "loud", "h")
	call.Post.Request.Resources = []Resource{PodResource("web-0", "uid", map[string]string{"manifest": strings.Repeat("x", 1<<20)})}
	for queue.takes("loud", call.bytes()) {
		queue.add(call)
	}
	if most := queue.options.BytesPerNamespace; queue.queuedBytes > most || queue.queuedBytes < most-2<<20 {
		t.Errorf("%d bytes wait, want at most %d and not much less", queue.queuedBytes, most)
	}
	if !queue.takes("quiet", call.bytes()) {
		t.Error("another namespace has no place")
	}
}

// TestNoNamespaceChangesTheBreakerOfAnother checks that the breakers of a namespace depend only on
// its own calls, for any order of calls of another namespace.
func TestNoNamespaceChangesTheBreakerOfAnother(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		together, alone := newFairQueue(PoolOptions{}.withDefaults()), newFairQueue(PoolOptions{}.withDefaults())
		now := noon
		run := func(queue *fairQueue, call Call, failure *Failure) bool {
			queue.add(call)
			taken, open := queue.take(now, false)
			if open == nil {
				queue.end(taken, failure, now)
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
