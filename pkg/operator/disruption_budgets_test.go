package operator

import (
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/permit"
	"github.com/podops-dev/podops/pkg/state/podindex"
)

// TestASlimDisruptionBudgetCountsTheSame shows that the index reads no field that is dropped.
func TestASlimDisruptionBudgetCountsTheSame(t *testing.T) {
	whole := &policyv1.PodDisruptionBudget{}
	fill(reflect.ValueOf(whole).Elem(), 3)
	whole.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	record := map[string]string{appsv1alpha1.PermitsAnnotationKey: `{"reserved":{"web-0-uid":"1"}}`}
	maps.Copy(whole.Annotations, record)
	whole.Status.Conditions = []metav1.Condition{
		{Type: "Other", Message: strings.Repeat("x", 1000)},
		{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason, Message: "no scale"},
	}
	want := podindex.NewDisruptionBudget(whole.DeepCopy())
	slim, err := slimDisruptionBudget(whole)
	if err != nil {
		t.Fatal(err)
	}
	budget := slim.(*policyv1.PodDisruptionBudget)
	got := podindex.NewDisruptionBudget(budget)
	if want.Selector.String() != got.Selector.String() {
		t.Errorf("selector %q, want %q", got.Selector, want.Selector)
	}
	if want.Record == nil {
		t.Error("the record is not read")
	}
	want.Selector, got.Selector = nil, nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-whole +slim):\n%s", diff)
	}
	if !maps.Equal(budget.Annotations, record) || budget.Labels != nil || budget.Status.DisruptedPods != nil || len(budget.Status.Conditions) != 1 {
		t.Errorf("unused fields are kept: %+v", budget)
	}
}

func TestADisruptionBudgetWithALargeSelectorSelectsNothing(t *testing.T) {
	values := make([]string, 100000)
	slim, err := slimDisruptionBudget(&policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: values}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if selector := slim.(*policyv1.PodDisruptionBudget).Spec.Selector; selector != nil {
		t.Error("the selector is kept")
	}
}

// TestALargeRecordIsNotKept matters because any user of a PodDisruptionBudget may write its annotations.
func TestALargeRecordIsNotKept(t *testing.T) {
	slim, err := slimDisruptionBudget(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		appsv1alpha1.PermitsAnnotationKey: strings.Repeat("x", permit.MaxAnnotationBytes+1),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if kept := slim.(*policyv1.PodDisruptionBudget).Annotations; kept != nil {
		t.Errorf("%d annotations are kept", len(kept))
	}
}
