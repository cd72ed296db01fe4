package podtransitionrule

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

// TestAVerdictThatAClientWaitsFor shows that a pod whose removal a client waits for in admission carries the verdict at
// once, and once.
func TestAVerdictThatAClientWaitsFor(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", labelled("approved", "approved"))
	for i := range 3 {
		pod := web(i).Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, s.clock.Now())
		request := deferreddelete.Request{Method: deferreddelete.MethodEviction, Actor: deferreddelete.ActorEvictor}
		pod.Annotation(appsv1alpha1.PendingDeleteAnnotationKey, deferreddelete.Encode(request.Begin(pod.Obj(), deferreddelete.Begun(pod.Obj()))))
		s.put(pod.Obj())
	}
	s.step(0)
	if len(s.explained) != 3 {
		t.Errorf("%d verdicts are written, want 3", len(s.explained))
	}
	s.explained = nil
	s.step(time.Second)
	if len(s.explained) != 0 {
		t.Errorf("%d verdicts are written again", len(s.explained))
	}
}

// TestAnnotationsAreWrittenALittleAtATime shows that a round does not last longer because many pods wait: all of
// them are explained in the end, and none once they do not wait any more.
func TestAnnotationsAreWrittenALittleAtATime(t *testing.T) {
	const pods = 2*maxBackgroundWrites + 1
	s := newHarness(t, opa.Options{})
	s.rules("web", labelled("approved", "approved"))
	began := s.clock.Now()
	for i := range pods {
		s.put(web(i).Waiting("a", "upgrade", began).Obj())
	}
	s.step(0)
	writes := func(wait time.Duration) (sizes []int) {
		s.explained = nil
		for s.step(wait); len(s.explained) > 0; s.step(evaluation.RetryBackground) {
			sizes = append(sizes, len(s.explained))
			s.explained = nil
		}
		return sizes
	}
	want := []int{maxBackgroundWrites, maxBackgroundWrites, 1}
	if diff := cmp.Diff(want, writes(explainAfter)); diff != "" {
		t.Errorf("annotations written by each round (-want +got):\n%s", diff)
	}
	for i := range pods {
		ended := s.pods[web(i).Obj().Name].DeepCopy()
		ended.Labels = web(i).Obj().Labels
		s.put(ended)
	}
	if diff := cmp.Diff(want, writes(0)); diff != "" {
		t.Errorf("annotations removed by each round (-want +got):\n%s", diff)
	}
}

// TestFailedAnnotationsHoldUpNoOthers shows that pods whose writes fail each time take turns with the others, also with pods that do not
// wait any more.
func TestFailedAnnotationsHoldUpNoOthers(t *testing.T) {
	const failing, others = 2 * maxBackgroundWrites, 3
	s := newHarness(t, opa.Options{})
	s.rules("web", labelled("approved", "approved"))
	began := s.clock.Now()
	want := map[string]bool{}
	for i := range failing + others {
		s.put(web(i).Waiting("a", "upgrade", began).Obj())
		if i >= failing {
			want[web(i).Obj().Name] = true
		}
	}
	s.refuse = func(name string) error {
		if want[name] {
			return nil
		}
		return errConflict()
	}
	rounds := func(what string, most int) {
		t.Helper()
		got := map[string]bool{}
		for range most {
			s.explained = nil
			s.step(evaluation.RetryBackground)
			for _, name := range s.explained {
				got[name] = true
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: pods that were written (-want +got):\n%s", what, diff)
		}
	}
	s.step(explainAfter)
	rounds("they wait", 2)
	for i := failing; i < failing+others; i++ {
		ended := s.pods[web(i).Obj().Name].DeepCopy()
		ended.Labels = web(i).Obj().Labels
		s.put(ended)
	}
	rounds("they have ended", 1)
}

// TestDetails shows that a pod that waits for long carries why, in the form that deployed clients
// read, and no longer than it waits.
func TestDetails(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", labelled("approved", "approved"), labelled("checked", "checked"))
	key := appsv1alpha1.DetailAnnotationPrefix + "/web"
	began := s.clock.Now()
	put := func(labels ...string) {
		pod := web(0).Waiting("a", "upgrade", began)
		for _, label := range labels {
			pod.Label(label, "yes")
		}
		if before := s.pods["web-000"]; before != nil && before.Annotations[key] != "" {
			pod.Annotation(key, before.Annotations[key])
		}
		s.put(pod.Obj())
	}
	expect := func(what string, after time.Duration, writes int, rules ...string) {
		t.Helper()
		result := s.step(after)
		if len(s.explained) != writes {
			t.Errorf("%s: %d writes, want %d", what, len(s.explained), writes)
		}
		s.explained = nil
		var detail appsv1alpha1.Detail
		var got []string
		if text := s.pods["web-000"].Annotations[key]; text != "" {
			s.must(json.Unmarshal([]byte(text), &detail))
		}
		for _, info := range detail.RejectInfo {
			got = append(got, info.RuleName+" "+info.Reason)
		}
		if diff := cmp.Diff(rules, got); diff != "" {
			t.Errorf("%s: annotation differs (-want +got):\n%s", what, diff)
		}
		if what == "it has just begun" && result.RequeueAfter != explainAfter-after {
			t.Errorf("%s: comes back after %s", what, result.RequeueAfter)
		}
	}
	const approved = `approved LabelMismatch: label approved is missing, "yes" is required`
	const checked = `checked LabelMismatch: label checked is missing, "yes" is required`
	put()
	expect("it has just begun", time.Second, 0)
	expect("it waits", explainAfter, 1, approved, checked)
	expect("nothing changes", 2*explanationInterval, 0, approved, checked)
	put("approved")
	expect("one rule is met", time.Second, 1, checked)
	put("approved", "checked")
	expect("it is permitted", time.Second, 0)

	put()
	expect("it waits again", explainAfter, 1, approved, checked)
	s.put(web(0).Annotation(key, s.pods["web-000"].Annotations[key]).Obj())
	expect("it was called off", time.Second, 1)
	expect("nothing is left", time.Second, 0)
}
