package rule_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
)

func TestWithholdsSome(t *testing.T) {
	most := func(value string) *appsv1alpha1.AvailablePolicy {
		return &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: new(intstr.Parse(value))}
	}
	least := func(value string) *appsv1alpha1.AvailablePolicy {
		return &appsv1alpha1.AvailablePolicy{MinAvailableValue: new(intstr.Parse(value))}
	}
	for name, tc := range map[string]struct {
		rule     appsv1alpha1.TransitionRule
		replicas int
		skipped  []string
		want     []string
	}{
		"a part may be unavailable":          {rule: appsv1alpha1.TransitionRule{AvailablePolicy: most("50%")}, replicas: 4, want: []string{"r"}},
		"all may be":                         {rule: appsv1alpha1.TransitionRule{AvailablePolicy: most("100%")}, replicas: 4},
		"as many as there are may be":        {rule: appsv1alpha1.TransitionRule{AvailablePolicy: most("4")}, replicas: 4},
		"fewer than there are may be":        {rule: appsv1alpha1.TransitionRule{AvailablePolicy: most("3")}, replicas: 4, want: []string{"r"}},
		"some must be available":             {rule: appsv1alpha1.TransitionRule{AvailablePolicy: least("1")}, replicas: 4, want: []string{"r"}},
		"none must be":                       {rule: appsv1alpha1.TransitionRule{AvailablePolicy: least("0%")}, replicas: 4},
		"a workload of no pods":              {rule: appsv1alpha1.TransitionRule{AvailablePolicy: least("1")}, replicas: 0},
		"a rule of another operation":        {rule: appsv1alpha1.TransitionRule{AvailablePolicy: most("1"), Conditions: []string{"update"}}, replicas: 4},
		"a rule that the pods skip":          {rule: appsv1alpha1.TransitionRule{AvailablePolicy: most("1")}, replicas: 4, skipped: []string{"r"}},
		"a disabled rule":                    {rule: appsv1alpha1.TransitionRule{AvailablePolicy: most("1"), Disabled: true}, replicas: 4},
		"a rule that warns":                  {rule: appsv1alpha1.TransitionRule{AvailablePolicy: most("1"), Enforcement: appsv1alpha1.EnforcementWarn}, replicas: 4},
		"a rule that is evaluated later":     {rule: appsv1alpha1.TransitionRule{AvailablePolicy: most("1"), Stage: appsv1alpha1.StagePostCheck}, replicas: 4},
		"a rule that is not of availability": {rule: appsv1alpha1.TransitionRule{LabelCheck: &appsv1alpha1.LabelCheck{}}, replicas: 4},
	} {
		t.Run(name, func(t *testing.T) {
			tc.rule.Name = "r"
			got := rule.WithholdsSome([]appsv1alpha1.TransitionRule{tc.rule}, tc.replicas, nil, tc.skipped)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
		})
	}
}
