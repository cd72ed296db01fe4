package podtransitionrule

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/state/podindex"
)

// TestAPIBudgetWriter shows that the resourceVersion of the PodDisruptionBudget that was read is the lock, and that nothing but
// the record changes.
func TestAPIBudgetWriter(t *testing.T) {
	object := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "web", UID: "web-uid", Annotations: map[string]string{"note": "x"},
	}}
	c := fake.NewClientBuilder().WithObjects(object).Build()
	read := &policyv1.PodDisruptionBudget{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), read); err != nil {
		t.Fatal(err)
	}
	w, budget := APIBudgetWriter{Client: c}, podindex.NewDisruptionBudget(read)
	record := &appsv1alpha1.PermitRecord{Reserved: []appsv1alpha1.ReservedPod{{UID: "web-0-uid", ResourceVersion: "1"}}}

	stored, err := w.WriteRecord(t.Context(), budget, record)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), read); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(podindex.NewDisruptionBudget(read), stored); diff != "" || stored.ResourceVersion == budget.ResourceVersion {
		t.Errorf("stored and returned (-stored +returned):\n%s", diff)
	}
	want := map[string]string{"note": "x", appsv1alpha1.PermitsAnnotationKey: `{"reserved":{"web-0-uid":"1"}}`}
	if diff := cmp.Diff(want, read.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if _, err := w.WriteRecord(t.Context(), budget, record); !apierrors.IsConflict(err) {
		t.Errorf("an older version: got %v, want a conflict", err)
	}
	if err := c.Delete(t.Context(), read); err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteRecord(t.Context(), stored, record); !apierrors.IsNotFound(err) {
		t.Errorf("one that is gone: got %v, want not found", err)
	}
}
