package podtransitionrule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/test/builders"
	"github.com/podops-dev/podops/test/measured"
)

// deferred is a pod whose delete is deferred.
func deferred(i int) *builders.PodBuilder {
	return web(i).Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, builders.Epoch.Add(time.Duration(i)*time.Minute))
}

// bounded gives a PodTransitionRule a bound for holds.
func (s *harness) bounded(name string, most time.Duration, action appsv1alpha1.HoldAction) {
	object := s.object(name).DeepCopy()
	object.ResourceVersion = s.next()
	object.Generation++
	object.Spec.MaxHold, object.Spec.OnMaxHold = &metav1.Duration{Duration: most}, action
	s.index.SetRule(object)
}

// eventsOf returns the warnings of a reason.
func eventsOf(all []string, reason string) []string {
	return slices.DeleteFunc(all, func(event string) bool { return !strings.HasPrefix(event, "Warning "+reason+" ") })
}

func TestAHoldIsCancelledWhenItsTimeIsOver(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", labelled("approved", "approved"))
	s.bounded("web", 5*time.Minute, "")
	s.put(deferred(0).Obj(), waits(1).Obj())
	s.round()
	if result := s.step(4 * time.Minute); result.RequeueAfter <= 0 || result.RequeueAfter > time.Minute {
		t.Errorf("the next round is in %s, and the hold ends in 1m", result.RequeueAfter)
	}
	if len(s.undone) > 0 {
		t.Errorf("cancelled after 4m: %v", s.undone)
	}
	s.recorded()
	s.step(time.Minute)
	if diff := cmp.Diff([]string{"web-000"}, s.undone); diff != "" {
		t.Errorf("cancelled after 5m, of the deferred delete and an upgrade (-want +got):\n%s", diff)
	}
	want := []string{"Warning HoldExpired operation delete of id pod-delete is cancelled: rule web/approved held it for 5m0s (maxHold)"}
	if diff := cmp.Diff(want, eventsOf(s.recorded(), EventHoldExpired)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if got := s.permitted(); len(got) > 0 {
		t.Errorf("permitted: %v", got)
	}

	t.Log("the hold of the next attempt begins again")
	s.put(deferred(0).Obj())
	s.round()
	s.step(4 * time.Minute)
	if len(s.undone) > 1 {
		t.Errorf("cancelled again after 4m")
	}
	s.step(time.Minute)
	if len(s.undone) != 2 {
		t.Errorf("not cancelled again after 5m")
	}
}

func TestAHoldReleasesItsPodWhenItsTimeIsOver(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", labelled("approved", "approved"), atMostUnavailable("most", "1"))
	s.bounded("web", 5*time.Minute, appsv1alpha1.HoldRelease)
	s.put(deferred(0).Obj(), deferred(1).Obj(), waits(2).Obj())
	s.round()
	s.step(5*time.Minute - time.Second)
	if got := s.permitted(); len(got) > 0 {
		t.Errorf("permitted too early: %v", got)
	}
	s.recorded()
	s.step(time.Second)
	if diff := cmp.Diff([]string{"web-000", "web-001"}, s.permitted()); diff != "" {
		t.Errorf("permitted (-want +got):\n%s", diff)
	}
	want := []string{
		"Warning HoldExpired operation delete of id pod-delete passes rule web/approved (LabelMismatch): maxHold, held for 5m0s",
		"Warning HoldExpired operation delete of id pod-delete passes rule web/approved (LabelMismatch) and 1 more rules: maxHold, held for 5m0s",
	}
	if diff := cmp.Diff(want, eventsOf(s.recorded(), EventHoldExpired)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if len(s.undone) > 0 {
		t.Errorf("cancelled: %v", s.undone)
	}
}

// TestTheManagerBoundsHoldsWithoutABound, including holds of PodDisruptionBudgets.
func TestTheManagerBoundsHoldsWithoutABound(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.restart(Config{Hold: evaluation.Hold{Max: time.Minute, Action: appsv1alpha1.HoldUndo}})
	s.disruptionBudget(pdb("web", 1, 1, 1))
	s.put(deferred(0).Obj())
	s.round()
	s.step(time.Minute)
	if diff := cmp.Diff([]string{"web-000"}, s.undone); diff != "" {
		t.Errorf("cancelled (-want +got):\n%s", diff)
	}

	t.Log("a new process has not observed the wait of the old one")
	s.undone = nil
	s.put(deferred(0).Obj())
	s.round()
	s.clock.SetTime(s.clock.Now().Add(59 * time.Second))
	s.restart(Config{Hold: evaluation.Hold{Max: time.Minute, Action: appsv1alpha1.HoldUndo}})
	s.step(30 * time.Second)
	if len(s.undone) > 0 {
		t.Error("cancelled after 30s of the new process")
	}
	s.step(time.Minute)
	if len(s.undone) != 1 {
		t.Error("not cancelled by the new process")
	}
}

func TestBreakGlassLetsPodsPass(t *testing.T) {
	for name, c := range map[string]struct {
		breaks func(s *harness)
		want   []string
		text   string
	}{
		"nothing is broken": {breaks: func(*harness) {}},
		"by pod": {
			breaks: func(s *harness) {
				s.put(waits(1).Annotation(appsv1alpha1.BreakGlassAnnotationKey, "INC-1\n\x1b[31mred").Obj())
			},
			want: []string{"web-001"}, text: `break-glass of the pod: INC-1 \x1b[31mred`,
		},
		"by namespace": {
			breaks: func(s *harness) { s.index.SetBreakGlass("default", "INC-2") },
			want:   []string{"web-000", "web-001"}, text: "break-glass of the namespace: INC-2",
		},
		"by another namespace": {breaks: func(s *harness) { s.index.SetBreakGlass("other", "INC-3") }},
		"globally": {
			breaks: func(s *harness) { s.index.SetBreakGlass("", "INC-4") },
			want:   []string{"web-000", "web-001"}, text: "break-glass of the cluster: INC-4",
		},
		"without a reason": {breaks: func(s *harness) { s.put(waits(1).Annotation(appsv1alpha1.BreakGlassAnnotationKey, "").Obj()) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(t, opa.Options{})
			var registry *prometheus.Registry
			s.reconciler.metrics, registry = newMeasured(t)
			s.index.SetNamespace("default", nil)
			s.rules("web", labelled("approved", "approved"), atMostUnavailable("most", "0"))
			s.disruptionBudget(pdb("web", 2, 2, 2))
			s.put(waits(0).Obj(), waits(1).Obj())
			s.round()
			s.recorded()
			s.news = 0
			c.breaks(s)
			if len(c.want) > 0 && s.news == 0 {
				t.Error("no round is queued")
			}
			s.step(time.Second)
			if diff := cmp.Diff(c.want, s.permitted()); diff != "" {
				t.Errorf("permitted (-want +got):\n%s", diff)
			}
			counted := measured.Values(t, registry, "podops_rules_waived_total")["exception=BreakGlass,namespace=default"]
			if counted != float64(len(c.want)) {
				t.Errorf("%v pods of the namespace are counted, want %d", counted, len(c.want))
			}
			events := eventsOf(s.recorded(), EventBreakGlass)
			if len(events) != len(c.want) {
				t.Errorf("%d events of %d pods: %v", len(events), len(c.want), events)
			}
			for _, event := range events {
				if !strings.Contains(event, "passes rule PodDisruptionBudget/web (NoRoom) and 2 more rules") || !strings.Contains(event, c.text) {
					t.Errorf("event %q, want %q", event, c.text)
				}
			}
		})
	}
}

// TestBreakGlassShowsAsACondition while it lasts.
func TestBreakGlassShowsAsACondition(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", labelled("approved", "approved"))
	s.put(web(0).Obj())
	s.round()
	if meta.FindStatusCondition(s.object("web").Status.Conditions, appsv1alpha1.ConditionBreakGlass) != nil {
		t.Error("the condition is there without an annotation")
	}
	s.index.SetBreakGlass("default", "INC-2")
	s.step(time.Minute)
	condition := meta.FindStatusCondition(s.object("web").Status.Conditions, appsv1alpha1.ConditionBreakGlass)
	if condition == nil || !strings.HasSuffix(condition.Message, appsv1alpha1.BreakGlassAnnotationKey+": INC-2") {
		t.Errorf("condition %+v", condition)
	}
	s.written()
	s.step(time.Minute)
	if got := s.written(); len(got) > 0 {
		t.Errorf("the status is written again: %v", got)
	}
	s.index.SetBreakGlass("default", "")
	s.step(time.Minute)
	if meta.FindStatusCondition(s.object("web").Status.Conditions, appsv1alpha1.ConditionBreakGlass) != nil {
		t.Error("the condition stays without the annotation")
	}
}

// TestAWaivedPodTakesItsSlot shows that the pods that are not exempt keep their limit.
func TestAWaivedPodTakesItsSlot(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", atMostUnavailable("most", "1"))
	s.put(waits(0).Obj(), waits(1).Annotation(appsv1alpha1.BreakGlassAnnotationKey, "INC-1").Obj(), waits(2).Obj())
	for range 3 {
		s.step(time.Second)
	}
	got := s.permitted()
	if diff := cmp.Diff([]string{"web-000", "web-001"}, got); diff != "" {
		t.Errorf("permitted (-want +got):\n%s", diff)
	}
}

// TestTheNamespaceOfTheManagerBreaksTheGlassOfAll until its annotation, or the namespace, is removed.
func TestTheNamespaceOfTheManagerBreaksTheGlassOfAll(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.restart(Config{ManagerNamespace: "podops-system"})
	s.put(web(0).Obj())
	annotated := func(name, reason string) *metav1.PartialObjectMetadata {
		object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if reason != "" {
			object.Annotations = map[string]string{appsv1alpha1.BreakGlassAnnotationKey: reason}
		}
		return object
	}
	expect := func(when, namespace, cluster string) {
		t.Helper()
		view := s.index.Snapshot("default", nil)
		if view.BreakGlass != namespace || view.ClusterBreakGlass != cluster {
			t.Errorf("%s: namespace %q, cluster %q", when, view.BreakGlass, view.ClusterBreakGlass)
		}
	}
	s.reconciler.setNamespace(annotated("default", "INC-1"))
	expect("annotated namespace", "INC-1", "")
	s.reconciler.setNamespace(annotated("podops-system", "INC-2"))
	expect("annotated namespace of the manager", "INC-1", "INC-2")
	s.reconciler.setNamespace(annotated("default", ""))
	expect("annotation removed", "", "INC-2")
	s.reconciler.deleteNamespace(annotated("podops-system", "INC-2"))
	expect("namespace of the manager deleted", "", "")
}

// TestARuleExemptsRevisions has pods that are being replaced, of which the pods of an abandoned revision come from
// rs-2.
func TestARuleExemptsRevisions(t *testing.T) {
	for exempt, want := range map[appsv1alpha1.ExemptRevisions][]string{
		"":                           nil,
		appsv1alpha1.ExemptNone:      nil,
		appsv1alpha1.ExemptAbandoned: {"web-002"},
		appsv1alpha1.ExemptOutdated:  {"web-001", "web-002"},
	} {
		t.Run(string(exempt), func(t *testing.T) {
			s := newHarness(t, opa.Options{})
			approval := labelled("approved", "approved")
			approval.ExemptRevisions = exempt
			s.rules("web", approval)
			s.index.SetOwner(podindex.Owner{UID: "deploy", Namespace: "default", Kind: "Deployment", Name: "web", Desired: 3})
			for i := range 3 {
				uid := types.UID(fmt.Sprintf("rs-%d", i+1))
				s.index.SetOwner(podindex.Owner{
					UID: uid, Namespace: "default", Kind: "ReplicaSet", Name: string(uid), Controller: "deploy", Desired: 1,
					Revision: int64(i + 1), Created: builders.Epoch.Add(time.Duration(i) * time.Hour),
				})
				s.put(waits(i+1).OwnedBy(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: string(uid), UID: uid}).
					Label("pod-template-hash", string(uid)).Obj())
			}
			s.round()
			if diff := cmp.Diff(want, s.permitted()); diff != "" {
				t.Errorf("permitted (-want +got):\n%s", diff)
			}
			events := slices.DeleteFunc(s.recorded(), func(event string) bool { return !strings.HasPrefix(event, "Normal "+EventExempt+" ") })
			if len(events) != len(want) {
				t.Fatalf("%d events of %d pods: %v", len(events), len(want), events)
			}
			if len(want) > 0 && !strings.Contains(strings.Join(events, "\n"), "passes rule web/approved (LabelMismatch): exemptRevisions, revision rs-2 is abandoned") {
				t.Errorf("events %v", events)
			}
		})
	}
}
