package podrelease

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

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
	// A rollout waits, without an annotation.
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "rolling", UID: "r"}}
	deployment.Spec.Template.Labels = map[string]string{appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue}
	deployment.Status.Replicas, deployment.Status.UpdatedReplicas = 15, 3
	rolling := set("of-rolling", "Deployment", "")
	rolling.OwnerReferences[0].UID = "r"
	patches := map[string]int{}
	c := fake.NewClientBuilder().WithObjects(
		set("untouched", "Deployment", ""), set("of-deployment", "Deployment", "9"), set("alone", "", "9"), set("of-rollout", "Rollout", "0"), stale,
		deployment, rolling,
	).WithInterceptorFuncs(interceptor.Funcs{Patch: func(
		ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption,
	) error {
		patches[object.GetName()]++
		return c.Patch(ctx, object, patch, options...)
	}}).Build()
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
	want := map[string]int32{"untouched": 12, "of-deployment": 12, "alone": 12, "of-rollout": 12, "stale": 12, "of-rolling": 12}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("replicas (-want +got):\n%s", diff)
	}
	if r.report.ReplicaSets != 5 {
		t.Errorf("%d ReplicaSets reported, want 5", r.report.ReplicaSets)
	}
	if patches["of-rolling"] != 2 || patches["untouched"] != 0 {
		t.Errorf("patches %v, want two, of which one wakes the controller of Deployments", patches)
	}
}
