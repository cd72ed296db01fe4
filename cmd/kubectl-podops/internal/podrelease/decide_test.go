package podrelease_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/podrelease"
	"github.com/podops-dev/podops/test/builders"
)

const (
	mine  = "prot.podopslifecycle.kusionstack.io/mine"
	yours = "prot.podopslifecycle.kusionstack.io/yours"
)

func TestDecide(t *testing.T) {
	const id, kind = "a", "update"
	for sentence, tc := range map[string]struct {
		pod            *builders.PodBuilder
		wantFinalizers []string
		wantEmpty      bool
		wantAnnotation bool // available-conditions stays
	}{
		"a pod that PodOps never touched needs nothing": {
			pod: builders.MakePod("web").Uncontrolled().Gateless(), wantEmpty: true,
		},
		"a waiting pod loses its lifecycle":            {pod: builders.MakePod("web").Available().Waiting(id, kind, builders.Epoch)},
		"a preparing pod serves again":                 {pod: builders.MakePod("web").Preparing(id, kind).Finalizer(mine), wantFinalizers: []string{mine}},
		"an operating pod serves again":                {pod: builders.MakePod("web").Allowed(id, kind)},
		"a pod in PostCheck serves again":              {pod: builders.MakePod("web").Finished(id, kind, builders.Epoch)},
		"a completing pod serves again":                {pod: builders.MakePod("web").Complete(id, kind).Expect("Service/default/lb", mine)},
		"a label of traces that an older release left": {pod: builders.MakePod("web").Available().Label(appsv1alpha1.BeganLabelPrefix+"/a", "1")},
		"the finalizer of another program stays":       {pod: builders.MakePod("web").Available().Finalizer(mine, yours), wantFinalizers: []string{mine}},
		"a foreign finalizer stays":                    {pod: builders.MakePod("web").Available().Finalizer("example.com/x")},
		"the expectation of another program stays":     {pod: builders.MakePod("web").Available().Expect("Service/default/lb", yours), wantAnnotation: true},
		"a terminating pod loses finalizers only":      {pod: builders.MakePod("web").Preparing(id, kind).Finalizer(mine).Terminating(builders.Epoch), wantFinalizers: []string{mine}},
	} {
		t.Run(sentence, func(t *testing.T) {
			pod := tc.pod.Obj()
			before := pod.DeepCopy()
			goes := func(name string) bool { return name == mine }
			got := podrelease.Decide(pod, goes, builders.Epoch)
			if diff := cmp.Diff(before, pod); diff != "" {
				t.Errorf("Decide modified the pod (-before +after):\n%s", diff)
			}
			if got.IsEmpty() != tc.wantEmpty {
				t.Errorf("IsEmpty = %t, want %t: %+v", got.IsEmpty(), tc.wantEmpty, got)
			}
			if diff := cmp.Diff(tc.wantFinalizers, got.Finalizers); diff != "" {
				t.Errorf("finalizers (-want +got):\n%s", diff)
			}
			after := apply(pod, got)
			if _, has := after.Annotations[appsv1alpha1.AvailableConditionsAnnotationKey]; has != tc.wantAnnotation {
				t.Errorf("annotation of expected finalizers is there: %t, want %t", has, tc.wantAnnotation)
			}
			if again := podrelease.Decide(after, goes, builders.Epoch); !again.IsEmpty() {
				t.Errorf("the pod as decided needs more: %+v", again)
			}
		})
	}
}

func TestDecideEndsTheDeletionOfAScaleDown(t *testing.T) {
	for name, cost := range map[string]string{"without a deletion cost": "", "with a deletion cost": "-7"} {
		t.Run(name, func(t *testing.T) {
			pod := builders.MakePod("web").Available().Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, builders.Epoch).Obj()
			pod.Annotations = map[string]string{
				appsv1alpha1.PreviousDeletionCostAnnotationKey: cost, corev1.PodDeletionCost: "-2147483648",
				appsv1alpha1.PendingDeleteAnnotationKey: "{}",
			}
			after := apply(pod, podrelease.Decide(pod, func(string) bool { return true }, builders.Epoch))
			if got := after.Annotations[corev1.PodDeletionCost]; got != cost || len(after.Annotations) > 1 {
				t.Errorf("annotations %v, want the deletion cost %q alone", after.Annotations, cost)
			}
		})
	}
}

func TestDecideLeavesAPodThatSurgesToItsReplicaSet(t *testing.T) {
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "1"}
	pod := builders.MakePod("web").Available().Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, builders.Epoch).Obj()
	pod.OwnerReferences = []metav1.OwnerReference{other, {APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "2", Controller: new(true)}}
	pod.Annotations = map[string]string{appsv1alpha1.SurgeAnnotationKey: `{"began":"2026-11-30T00:00:00Z","cost":true}`, corev1.PodDeletionCost: "1"}
	decision := podrelease.Decide(pod, func(string) bool { return true }, builders.Epoch)
	if diff := cmp.Diff([]metav1.OwnerReference{other}, decision.Owners); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	after := apply(pod, decision)
	if len(after.Annotations) > 0 {
		t.Errorf("the annotations %v stay", after.Annotations)
	}
	after.OwnerReferences = decision.Owners
	if again := podrelease.Decide(after, func(string) bool { return true }, builders.Epoch); !again.IsEmpty() {
		t.Errorf("the pod as decided needs more: %+v", again)
	}
}

// apply returns the pod as the API server has it after the decision was written.
func apply(pod *corev1.Pod, decision podrelease.Decision) *corev1.Pod {
	after := pod.DeepCopy()
	after.Labels = decision.Change.Apply(pod.Labels)
	for key, value := range decision.Change.Annotations {
		if value == nil {
			delete(after.Annotations, key)
			continue
		}
		after.Annotations[key] = *value
	}
	if decision.Change.Gate != nil {
		status := corev1.ConditionFalse
		if *decision.Change.Gate {
			status = corev1.ConditionTrue
		}
		found := false
		for i := range after.Status.Conditions {
			if after.Status.Conditions[i].Type == appsv1alpha1.ServiceReadyGate {
				after.Status.Conditions[i].Status, found = status, true
			}
		}
		if !found {
			after.Status.Conditions = append(after.Status.Conditions, corev1.PodCondition{Type: appsv1alpha1.ServiceReadyGate, Status: status})
		}
	}
	after.Finalizers = nil
	for _, name := range pod.Finalizers {
		removed := false
		for _, gone := range decision.Finalizers {
			removed = removed || gone == name
		}
		if !removed {
			after.Finalizers = append(after.Finalizers, name)
		}
	}
	return after
}
