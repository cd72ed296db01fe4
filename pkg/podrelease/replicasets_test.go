package podrelease

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

func TestReleaseReplicaSets(t *testing.T) {
	set := func(name, owner, desired string) *appsv1.ReplicaSet {
		s := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{"note": "x"}}}
		s.Spec.Replicas = new(int32(12))
		if owner != "" {
			s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: owner, Name: "web", UID: "u", Controller: new(true)}}
		}
		if desired != "" {
			s.Annotations[appsv1alpha1.DesiredReplicasAnnotationKey] = desired
		}
		return s
	}
	stale := set("stale", "Deployment", "")
	stale.Annotations[appsv1alpha1.LowestReplicasAnnotationKey] = "3"
	c := fake.NewClientBuilder().WithObjects(
		set("untouched", "Deployment", ""), set("of-deployment", "Deployment", "9"), set("alone", "", "9"), set("of-rollout", "Rollout", "0"), stale,
	).Build()
	r := &runner{client: c}
	if err := r.releaseReplicaSets(t.Context()); err != nil {
		t.Fatal(err)
	}
	list := &appsv1.ReplicaSetList{}
	if err := c.List(t.Context(), list, client.InNamespace("default")); err != nil {
		t.Fatal(err)
	}
	got := map[string]int32{}
	for _, s := range list.Items {
		got[s.Name] = *s.Spec.Replicas
		if diff := cmp.Diff(map[string]string{"note": "x"}, s.Annotations); diff != "" {
			t.Errorf("annotations of %s (-want +got):\n%s", s.Name, diff)
		}
	}
	want := map[string]int32{"untouched": 12, "of-deployment": 12, "alone": 12, "of-rollout": 12, "stale": 12}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("replicas (-want +got):\n%s", diff)
	}
	if r.report.ReplicaSets != 4 {
		t.Errorf("%d ReplicaSets reported, want 4", r.report.ReplicaSets)
	}
}
