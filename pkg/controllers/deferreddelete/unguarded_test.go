package deferreddelete

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/builders"
	"github.com/podops-dev/podops/test/measured"
)

// ruleset returns a PodTransitionRule of the pods with the label app=web.
func ruleset(edits ...func(*appsv1alpha1.TransitionRule)) client.Object {
	rule := appsv1alpha1.TransitionRule{Name: "keep"}
	for _, edit := range edits {
		edit(&rule)
	}
	return &appsv1alpha1.PodTransitionRule{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: appsv1alpha1.PodTransitionRuleSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Rules: []appsv1alpha1.TransitionRule{rule},
		},
	}
}

func newUnguarded(t *testing.T, objects ...client.Object) (*Unguarded, *events.FakeRecorder, *prometheus.Registry) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, appsv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	recorder, registry := events.NewFakeRecorder(10), prometheus.NewRegistry()
	metrics, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	u := NewUnguarded(nil, recorder, metrics)
	u.reader = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	return u, recorder, registry
}

func TestUnguarded(t *testing.T) {
	active := func() client.Object { return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}} }
	ending := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", DeletionTimestamp: &metav1.Time{Time: start}, Finalizers: []string{"kubernetes"}}}
	going := func() *builders.PodBuilder {
		return builders.MakePod("web-0").Label("app", "web").Node("node-1").OwnedBy(statefulOwner).Terminating(start)
	}
	for name, tc := range map[string]struct {
		pod     *corev1.Pod
		objects []client.Object
		want    string // reason; empty: guarded
		text    string // in the event
	}{
		"its node is deleted": {
			pod:     orphanedByNode(),
			objects: []client.Object{active(), ruleset(), stateful("new")}, want: "PodGC", text: "its node is deleted",
		},
		"the owner is of a kind that is not read": {
			pod:     builders.MakePod("web-0").Label("app", "web").Node("node-1").OwnedBy(customOwner).Terminating(start).Obj(),
			objects: []client.Object{active(), ruleset()}, want: "Unanswered", text: "its owner, CloneSet.apps.kruise.io, which PodOps does not read, is deleted, or",
		},
		"a rule was not evaluated":     {pod: going().Obj(), objects: []client.Object{active(), ruleset(), stateful("new")}, want: "Unanswered"},
		"the owner is deleted":         {pod: going().Obj(), objects: []client.Object{active(), ruleset()}, want: "OwnerDeleted"},
		"no rule selects the pod":      {pod: going().Label("app", "db").Obj(), objects: []client.Object{active(), ruleset(), stateful("new")}},
		"the rule only warns":          {pod: going().Obj(), objects: []client.Object{active(), stateful("new"), ruleset(func(r *appsv1alpha1.TransitionRule) { r.Enforcement = appsv1alpha1.EnforcementWarn })}},
		"the rule is for updates":      {pod: going().Obj(), objects: []client.Object{active(), stateful("new"), ruleset(func(r *appsv1alpha1.TransitionRule) { r.Conditions = []string{"update"} })}},
		"the namespace is terminating": {pod: going().Obj(), objects: []client.Object{ending, ruleset(), stateful("new")}},
		"the rules permitted it":       {pod: going().Allowed("pod-delete", "delete").Obj(), objects: []client.Object{active(), ruleset(), stateful("new")}},
		"the pod is not being removed": {pod: builders.MakePod("web-0").Label("app", "web").Node("node-1").Obj(), objects: []client.Object{active(), ruleset()}},
		"a bare pod has its own event": {pod: bareGoing(), objects: []client.Object{active(), ruleset()}, want: "Unanswered"},
	} {
		t.Run(name, func(t *testing.T) {
			u, recorder, registry := newUnguarded(t, tc.objects...)
			u.observe(t.Context(), tc.pod)
			u.observe(t.Context(), tc.pod) // another event of the same pod
			var got []string
			for len(recorder.Events) > 0 {
				got = append(got, <-recorder.Events)
			}
			if tc.want == "" {
				if len(got) > 0 {
					t.Errorf("events %v", got)
				}
				return
			}
			if len(got) != 1 {
				t.Fatalf("events %v, want one", got)
			}
			if !strings.Contains(got[0], tc.text) {
				t.Errorf("event %q, want %q in it", got[0], tc.text)
			}
			for series, count := range measured.Values(t, registry, "podops_deletes_unguarded_total") {
				if want := series == "namespace=default,reason="+tc.want; want != (count == 1) || !want && count != 0 {
					t.Errorf("%v pods count for %s, want one for %s alone", count, series, tc.want)
				}
			}
			u.forget(toolscache.DeletedFinalStateUnknown{Obj: tc.pod})
			if len(u.seen) != 0 {
				t.Errorf("%d pods are remembered after they have gone", len(u.seen))
			}
			u.forgetNamespace(active())
			if left := measured.Values(t, registry, "podops_deletes_unguarded_total")["namespace=default,reason="+tc.want]; left != 0 {
				t.Errorf("%v pods count for a deleted namespace", left)
			}
		})
	}
}

// orphanedByNode is a pod as pod GC writes it, right before it deletes the pod without grace.
func orphanedByNode() *corev1.Pod {
	pod := builders.MakePod("web-0").Label("app", "web").Node("node-1").OwnedBy(statefulOwner).Phase(corev1.PodFailed).Obj()
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByPodGC",
	})
	return pod
}

func bareGoing() *corev1.Pod {
	return builders.MakePod("web-0").Label("app", "web").Node("node-1").Terminating(start).Obj()
}

func TestSubjectOf(t *testing.T) {
	owned := builders.MakePod("web-0").OwnedBy(statefulOwner).Obj()
	want := &corev1.ObjectReference{APIVersion: "apps/v1", Kind: "StatefulSet", Namespace: "default", Name: "web", UID: "web-uid"}
	if diff := cmp.Diff(fmt.Sprint(want), fmt.Sprint(eventSubject(owned))); diff != "" {
		t.Errorf("subject (-want +got):\n%s", diff)
	}
	if pod := bareGoing(); eventSubject(pod) != runtime.Object(pod) {
		t.Error("a pod without an owner is its own subject")
	}
}

func TestUpdatesInPlace(t *testing.T) {
	named := func(labels map[string]string) client.Object {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: labels}}
	}
	denies := func() client.Object {
		denying := ruleset(func(r *appsv1alpha1.TransitionRule) { r.Conditions = []string{"delete"} }).(*appsv1alpha1.PodTransitionRule)
		denying.Spec.UnguardedUpdates = appsv1alpha1.UnguardedUpdatesDeny
		return denying
	}
	running := func() *builders.PodBuilder { return builders.MakePod("web-0").Label("app", "web").Node("node-1") }
	for name, tc := range map[string]struct {
		pod     *builders.PodBuilder
		objects []client.Object
		want    bool
	}{
		"under a rule":                         {pod: running(), objects: []client.Object{named(nil), ruleset()}, want: true},
		"under a rule for resizes":             {pod: running(), objects: []client.Object{named(nil), ruleset(func(r *appsv1alpha1.TransitionRule) { r.Conditions = []string{"resize"} })}, want: true},
		"under a rule for deletes that denies": {pod: running(), objects: []client.Object{named(nil), denies()}, want: true},
		"under a rule for deletes":             {pod: running(), objects: []client.Object{named(nil), ruleset(func(r *appsv1alpha1.TransitionRule) { r.Conditions = []string{"delete"} })}},
		"under a rule that only warns":         {pod: running(), objects: []client.Object{named(nil), ruleset(func(r *appsv1alpha1.TransitionRule) { r.Enforcement = appsv1alpha1.EnforcementWarn })}},
		"that no rule selects":                 {pod: running().Label("app", "db"), objects: []client.Object{named(nil), ruleset(), denies()}[:2]},
		"in an operation":                      {pod: running().Allowed("x", "update"), objects: []client.Object{named(nil), ruleset()}},
		"in a namespace out of PodOps":         {pod: running(), objects: []client.Object{named(map[string]string{"kusionstack.io/control": "false"}), ruleset()}},
		"in a namespace that is not read yet":  {pod: running(), objects: []client.Object{ruleset()}},
	} {
		t.Run("a pod "+name, func(t *testing.T) {
			u, recorder, registry := newUnguarded(t, tc.objects...)
			versions := []*corev1.Pod{tc.pod.Obj(), tc.pod.Obj(), tc.pod.Obj(), tc.pod.Obj()}
			for i, generation := range []int64{1, 2, 2, 3} {
				versions[i].Generation = generation
			}
			u.observe(t.Context(), versions[0])
			for i := range versions[1:] {
				u.observeUpdate(t.Context(), versions[i], versions[i+1])
			}
			var got []string
			for len(recorder.Events) > 0 {
				got = append(got, <-recorder.Events)
			}
			counted := measured.Values(t, registry, "podops_updates_unguarded_total")["namespace=default"]
			if !tc.want {
				if len(got) > 0 || counted != 0 {
					t.Errorf("events %v, %v counted", got, counted)
				}
				return
			}
			if len(got) != 2 || counted != 2 || !strings.Contains(got[0], "Warning UpdatedUnguarded") || !strings.Contains(got[0], "generation 2") {
				t.Errorf("events %v, %v counted, want one for each of two changes", got, counted)
			}
			u.forgetNamespace(named(nil))
			if left := measured.Values(t, registry, "podops_updates_unguarded_total"); len(left) != 1 {
				t.Errorf("series %v are left of a deleted namespace", left)
			}
		})
	}
}
