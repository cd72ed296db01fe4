package podrelease

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

func TestReleaseOperationsRemovesItsFinalizerOnly(t *testing.T) {
	operation := func(name string, finalizers ...string) *appsv1alpha1.PodOperation {
		return &appsv1alpha1.PodOperation{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Finalizers: finalizers}}
	}
	const other = "example.com/other"
	r := runnerOf(t, Options{}, operation("one", appsv1alpha1.PodOperationFinalizer), operation("two", other, appsv1alpha1.PodOperationFinalizer), operation("three"))
	for range 2 {
		if err := r.releaseOperations(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	left := &appsv1alpha1.PodOperationList{}
	if err := r.client.List(t.Context(), left); err != nil {
		t.Fatal(err)
	}
	for _, operation := range left.Items {
		want := operation.Name == "two"
		if slices.Contains(operation.Finalizers, other) != want || slices.Contains(operation.Finalizers, appsv1alpha1.PodOperationFinalizer) {
			t.Errorf("%s has the finalizers %v", operation.Name, operation.Finalizers)
		}
	}
}
