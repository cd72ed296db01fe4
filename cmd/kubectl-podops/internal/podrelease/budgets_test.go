package podrelease

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

func TestReleaseBudgets(t *testing.T) {
	budget := func(name string, annotations map[string]string) *policyv1.PodDisruptionBudget {
		return &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: annotations}}
	}
	patches := map[string]int{}
	r := intercepted(t, interceptor.Funcs{Patch: func(
		ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption,
	) error {
		patches[object.GetName()]++
		return c.Patch(ctx, object, patch, options...)
	}},
		budget("recorded", map[string]string{appsv1alpha1.PermitsAnnotationKey: "{}", "note": "x"}),
		budget("only-recorded", map[string]string{appsv1alpha1.PermitsAnnotationKey: "{}"}),
		budget("untouched", map[string]string{"note": "x"}),
	)
	if err := r.releaseBudgets(t.Context()); err != nil {
		t.Fatal(err)
	}
	list := &policyv1.PodDisruptionBudgetList{}
	if err := r.client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, one := range list.Items {
		got[one.Name] = len(one.Annotations)
		if _, left := one.Annotations[appsv1alpha1.PermitsAnnotationKey]; left {
			t.Errorf("%s still has a record", one.Name)
		}
	}
	if diff := cmp.Diff(map[string]int{"recorded": 1, "only-recorded": 0, "untouched": 1}, got); diff != "" {
		t.Errorf("annotations that are left (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"recorded": 1, "only-recorded": 1}, patches); diff != "" {
		t.Errorf("patches (-want +got):\n%s", diff)
	}
}
