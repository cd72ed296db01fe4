package podtransitionrule

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/webhookrule/webhookclient"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask/dispatch"
)

// attended is a StatusWriter that has something done before each write.
type attended struct {
	StatusWriter
	before func(object string)
}

func (a attended) WriteStatus(ctx context.Context, object *appsv1alpha1.PodTransitionRule) (*appsv1alpha1.PodTransitionRule, error) {
	a.before(object.Name)
	return a.StatusWriter.WriteStatus(ctx, object)
}

// TestNoObjectWaitsForTheCallsOfAnother shows that statuses with calls are written at once. Here none
// is written before all have begun.
func TestNoObjectWaitsForTheCallsOfAnother(t *testing.T) {
	const objects = 8
	s := newHarness(t, opa.Options{})
	for i := range objects {
		s.rules(fmt.Sprintf("web-%d", i), webhookRule("approval", false))
	}
	s.put(waits(0).Obj())
	var begun sync.WaitGroup
	begun.Add(objects)
	all := make(chan struct{})
	go func() {
		begun.Wait()
		close(all)
	}()
	s.reconciler.statuses = attended{s, func(object string) {
		begun.Done()
		select {
		case <-all:
		case <-time.After(time.Minute):
			t.Errorf("%s is written, and others have to wait", object)
		}
	}}
	s.round()
	if calls, _ := s.service.take(); len(calls) != objects {
		t.Errorf("%d calls, want one of each of %d objects", len(calls), objects)
	}
}

// TestHumanReadableStatusIsWrittenLast shows that a status that has changed, but that no pod waits for,
// comes after the calls and the permits of the round.
func TestHumanReadableStatusIsWrittenLast(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("all", labelled("approved", "approved"))
	s.rules("web", webhookRule("approval", false))
	s.put(waits(0).Label("approved", "yes").Obj())
	var calls, permits []int // when the status of each was written
	s.reconciler.statuses = attended{s, func(object string) {
		if object == "all" {
			calls, permits = append(calls, len(s.service.calls)), append(permits, len(s.stamped))
		}
	}}

	s.round()
	if diff := cmp.Diff([]string{"web", "all"}, s.written()); diff != "" {
		t.Errorf("statuses written first (-want +got):\n%s", diff)
	}
	call := s.expectCalls("at first", "POST web-000")[0]
	s.deliver(dispatch.Result{Call: call, Post: &webhooktask.PostAnswer{Success: true}})
	s.put(web(1).Obj()) // one more pod to count
	s.step(2 * statusInterval)
	if diff := cmp.Diff([]string{"web", "all"}, s.written()); diff != "" {
		t.Errorf("statuses written then (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([][]int{{1, 0}, {0, 1}}, [][]int{calls, permits}); diff != "" {
		t.Errorf("calls and permits before the human-readable status (-want +got):\n%s", diff)
	}
}

// TestHumanReadableStatusIsWrittenALittleAtATime shows that a round does not last longer because many
// statuses have changed, and all of them are written in the end.
func TestHumanReadableStatusIsWrittenALittleAtATime(t *testing.T) {
	const objects = 2*maxBackgroundWrites + 1
	s := newHarness(t, opa.Options{})
	for i := range objects {
		s.rules(fmt.Sprintf("web-%02d", i), labelled("approved", "approved"))
	}
	var sizes []int
	for s.round().RequeueAfter != 0 {
		sizes = append(sizes, len(s.written()))
		if len(sizes) > objects {
			t.Fatalf("there is no end to it: %v", sizes)
		}
	}
	sizes = append(sizes, len(s.written()))
	if diff := cmp.Diff([]int{maxBackgroundWrites, maxBackgroundWrites, 1}, sizes); diff != "" {
		t.Errorf("statuses written by each round (-want +got):\n%s", diff)
	}
}

// TestObjectsTakeTurns shows that with news of all of them in every round, none is left out.
func TestObjectsTakeTurns(t *testing.T) {
	s := newHarness(t, opa.Options{})
	want := map[string]int{}
	for i := range maxBackgroundWrites + maxBackgroundWrites/2 {
		name := fmt.Sprintf("web-%02d", i)
		s.rules(name, labelled("approved", "approved"))
		want[name] = 4
	}
	written := map[string]int{}
	for i := range 6 {
		s.put(web(i).Obj()) // one more pod for each to count
		s.step(statusInterval)
		for _, name := range s.written() {
			written[name]++
		}
	}
	if diff := cmp.Diff(want, written); diff != "" {
		t.Errorf("statuses written in 6 rounds (-want +got):\n%s", diff)
	}
}

// TestCallsThatFailedAreWrittenALittleAtATime shows that a service that gives up leaves many rules with the
// same news at once, and no pod waits for that. An answer is written at once.
func TestCallsThatFailedAreWrittenALittleAtATime(t *testing.T) {
	const objects = maxBackgroundWrites + 2
	s := newHarness(t, opa.Options{})
	for i := range objects {
		s.rules(fmt.Sprintf("web-%02d", i), webhookRule("approval", false))
	}
	const answered = "web-09"
	s.put(waits(0).Obj())
	s.round()
	s.written()
	calls, _ := s.service.take()
	if len(calls) != objects {
		t.Fatalf("%d calls, want %d", len(calls), objects)
	}
	for _, call := range calls {
		result := dispatch.Result{Call: call, Failure: &webhookclient.Failure{Class: webhookclient.ClassTimeout, Message: "no answer"}}
		if call.Rule.Ruleset.Name == answered {
			result = dispatch.Result{Call: call, Post: &webhooktask.PostAnswer{Success: true}}
		}
		s.deliver(result)
	}
	s.step(statusInterval)
	first := s.written()
	if first[0] != answered {
		t.Errorf("the first status is %s, want %s", first[0], answered)
	}
	s.round()
	second := s.written()
	if diff := cmp.Diff([]int{1 + maxBackgroundWrites, 1}, []int{len(first), len(second)}); diff != "" {
		t.Errorf("statuses written by two rounds (-want +got):\n%s", diff)
	}
}
