package podindex_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/state/podindex"
)

func TestDeploymentsThatNeverFinish(t *testing.T) {
	labels := map[string]string{"app": "web", appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue}
	ruleset := &appsv1alpha1.PodTransitionRule{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "r"}}
	ruleset.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	ruleset.Spec.Rules = []appsv1alpha1.TransitionRule{{
		Name: "half", AvailablePolicy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: new(intstr.FromString("50%"))},
	}}
	web := podindex.Owner{UID: "web", Namespace: "default", Kind: "Deployment", Name: "web", Desired: 4, TemplateLabels: labels, Recreates: true}
	rolling, skipping, other := web, web, web
	rolling.Recreates = false
	skipping.SkipRules = []string{"half"}
	other.TemplateLabels = map[string]string{"app": "other", appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue}
	x := newIndex(t)
	x.SetRule(ruleset)
	for _, step := range []struct {
		name  string
		owner podindex.Owner
		want  []string
	}{
		{"Recreate", web, []string{"web"}},
		{"edited to RollingUpdate", rolling, nil},
		{"and back", web, []string{"web"}},
		{"its pods skip the rule", skipping, nil},
		{"the rule does not select its pods", other, nil},
	} {
		x.SetOwner(step.owner)
		if diff := cmp.Diff(step.want, x.Snapshot("default", nil).Rules[0].NeverFinish); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}
