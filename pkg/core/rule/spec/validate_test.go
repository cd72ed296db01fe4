package spec_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
)

func TestValidate(t *testing.T) {
	type errorAt struct {
		Type  field.ErrorType
		Field string
	}
	available := func(policy appsv1alpha1.AvailablePolicy) func(*appsv1alpha1.TransitionRule) {
		return func(rule *appsv1alpha1.TransitionRule) {
			rule.LabelCheck, rule.AvailablePolicy = nil, &policy
		}
	}
	atMost := func(value any) func(*appsv1alpha1.TransitionRule) {
		return available(appsv1alpha1.AvailablePolicy{MaxUnavailableValue: bound(value)})
	}
	atLeast := func(value any) func(*appsv1alpha1.TransitionRule) {
		return available(appsv1alpha1.AvailablePolicy{MinAvailableValue: bound(value)})
	}
	requires := func(selector *metav1.LabelSelector) func(*appsv1alpha1.TransitionRule) {
		return func(rule *appsv1alpha1.TransitionRule) { rule.LabelCheck.Requires = selector }
	}
	expression := func(operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "zone", Operator: operator, Values: values},
		}}
	}
	badMax := []errorAt{{field.ErrorTypeInvalid, "rule.availablePolicy.maxUnavailableValue"}}
	badMin := []errorAt{{field.ErrorTypeInvalid, "rule.availablePolicy.minAvailableValue"}}
	approval := func(minApprovals int32, further func(*appsv1alpha1.TransitionRule)) func(*appsv1alpha1.TransitionRule) {
		return func(rule *appsv1alpha1.TransitionRule) {
			rule.LabelCheck, rule.Approval = nil, &appsv1alpha1.ApprovalRule{MinApprovals: minApprovals}
			if further != nil {
				further(rule)
			}
		}
	}
	badRequires := []errorAt{{field.ErrorTypeInvalid, "rule.labelCheck.requires"}}

	for name, tc := range map[string]struct {
		change func(*appsv1alpha1.TransitionRule)
		want   []errorAt
	}{
		"a label check is valid": {change: func(*appsv1alpha1.TransitionRule) {}},
		"a rule needs a name": {
			change: func(rule *appsv1alpha1.TransitionRule) { rule.Name = "" },
			want:   []errorAt{{field.ErrorTypeRequired, "rule.name"}},
		},
		"a surge is valid": {change: available(appsv1alpha1.AvailablePolicy{MinAvailableValue: bound(1), Surge: bound("25%")})},
		"a surge below 0 is invalid": {
			change: available(appsv1alpha1.AvailablePolicy{MinAvailableValue: bound(1), Surge: bound(-1)}),
			want:   []errorAt{{field.ErrorTypeInvalid, "rule.availablePolicy.surge"}},
		},
		"a surge alone bounds nothing": {
			change: available(appsv1alpha1.AvailablePolicy{Surge: bound(1)}),
			want:   []errorAt{{field.ErrorTypeRequired, "rule.availablePolicy"}},
		},
		"a rule needs a kind": {
			change: func(rule *appsv1alpha1.TransitionRule) { rule.LabelCheck = nil },
			want:   []errorAt{{field.ErrorTypeRequired, "rule"}},
		},
		"two kinds are one too many": {
			change: func(rule *appsv1alpha1.TransitionRule) {
				rule.AvailablePolicy = &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: bound(1)}
			},
			want: []errorAt{{field.ErrorTypeForbidden, "rule.labelCheck"}},
		},
		"an approval": {change: approval(1, nil)},
		"an approval by too many": {
			change: approval(11, nil), want: []errorAt{{field.ErrorTypeInvalid, "rule.approval.minApprovals"}},
		},
		"an approval after the operation": {
			change: approval(1, func(rule *appsv1alpha1.TransitionRule) { rule.Stage = appsv1alpha1.StagePostCheck }),
			want:   []errorAt{{field.ErrorTypeInvalid, "rule.stage"}},
		},
		"an approval that no rollout needs": {
			change: approval(1, func(rule *appsv1alpha1.TransitionRule) { rule.ExemptRevisions = appsv1alpha1.ExemptOutdated }),
			want:   []errorAt{{field.ErrorTypeInvalid, "rule.exemptRevisions"}},
		},
		"an approval that a rollback does not need": {
			change: approval(1, func(rule *appsv1alpha1.TransitionRule) { rule.ExemptRevisions = appsv1alpha1.ExemptAbandoned }),
		},
		"rego with a module": {
			change: rego(appsv1alpha1.RegoRule{Module: "package rule", Parameters: parameters(`{"a": 1}`)}),
		},
		"rego with a policy": {
			change: rego(appsv1alpha1.RegoRule{PolicyRef: &appsv1alpha1.PolicyReference{Name: "mine"}}),
		},
		"rego with nothing": {
			change: rego(appsv1alpha1.RegoRule{}),
			want:   []errorAt{{field.ErrorTypeRequired, "rule.rego"}},
		},
		"rego with both": {
			change: rego(appsv1alpha1.RegoRule{Module: "package rule", PolicyRef: &appsv1alpha1.PolicyReference{Name: "mine"}}),
			want:   []errorAt{{field.ErrorTypeForbidden, "rule.rego.policyRef"}},
		},
		"rego with a policy without a name": {
			change: rego(appsv1alpha1.RegoRule{PolicyRef: &appsv1alpha1.PolicyReference{}}),
			want:   []errorAt{{field.ErrorTypeRequired, "rule.rego.policyRef.name"}},
		},
		"rego with the largest module": {
			change: rego(appsv1alpha1.RegoRule{Module: strings.Repeat("#", 16384)}),
		},
		"rego with a module that is too large": {
			change: rego(appsv1alpha1.RegoRule{Module: strings.Repeat("#", 16385)}),
			want:   []errorAt{{field.ErrorTypeTooLong, "rule.rego.module"}},
		},
		"rego with a list as parameters": {
			change: rego(appsv1alpha1.RegoRule{Module: "package rule", Parameters: parameters(`[]`)}),
			want:   []errorAt{{field.ErrorTypeInvalid, "rule.rego.parameters"}},
		},
		"rego with null as parameters": {
			change: rego(appsv1alpha1.RegoRule{Module: "package rule", Parameters: parameters(`null`)}),
			want:   []errorAt{{field.ErrorTypeInvalid, "rule.rego.parameters"}},
		},
		"an unknown stage would make the rule inactive": {
			change: func(rule *appsv1alpha1.TransitionRule) { rule.Stage = "precheck" },
			want:   []errorAt{{field.ErrorTypeNotSupported, "rule.stage"}},
		},
		"an unknown enforcement": {
			change: func(rule *appsv1alpha1.TransitionRule) { rule.Enforcement = "Off" },
			want:   []errorAt{{field.ErrorTypeNotSupported, "rule.enforcement"}},
		},
		"a filter that does not parse": {
			change: func(rule *appsv1alpha1.TransitionRule) {
				rule.Filter = &appsv1alpha1.TransitionRuleFilter{LabelSelector: expression("Like", "a")}
			},
			want: []errorAt{{field.ErrorTypeInvalid, "rule.filter.labelSelector"}},
		},
		"a filter without a selector": {
			change: func(rule *appsv1alpha1.TransitionRule) { rule.Filter = &appsv1alpha1.TransitionRuleFilter{} },
		},
		"a label check without a selector": {
			change: requires(nil),
			want:   []errorAt{{field.ErrorTypeRequired, "rule.labelCheck.requires"}},
		},
		"In without values":     {change: requires(expression(metav1.LabelSelectorOpIn)), want: badRequires},
		"Exists with values":    {change: requires(expression(metav1.LabelSelectorOpExists, "a")), want: badRequires},
		"a quote in a value":    {change: requires(matchLabels("app", `a"b`)), want: badRequires},
		"a line break in a key": {change: requires(matchLabels("a\nb", "c")), want: badRequires},
		"a value of 64 bytes": {
			change: requires(matchLabels("a", string(make([]byte, 64)))),
			want:   []errorAt{{field.ErrorTypeTooLong, "rule.labelCheck.requires.matchLabels[a]"}},
		},
		"an empty label check":   {change: requires(&metav1.LabelSelector{})},
		"at most 1":              {change: atMost(1)},
		"at most 0":              {change: atMost(0)},
		"at most -1":             {change: atMost(-1), want: badMax},
		"at most 1%":             {change: atMost("1%")},
		"at most 100%":           {change: atMost("100%")},
		"at most 0%":             {change: atMost("0%")},
		"at most 150%":           {change: atMost("150%"), want: badMax},
		"at most 50 %":           {change: atMost("50 %"), want: badMax},
		"at most 050%":           {change: atMost("050%"), want: badMax},
		"at most +5%":            {change: atMost("+5%"), want: badMax},
		"at most %":              {change: atMost("%"), want: badMax},
		"at most empty":          {change: atMost(""), want: badMax},
		"at most 5 as a string":  {change: atMost("5"), want: badMax},
		"at most a huge percent": {change: atMost("99999999999999999999%"), want: badMax},
		"at least 0":             {change: atLeast(0)},
		"at least -1":            {change: atLeast(-1), want: badMin},
		"at least 0%":            {change: atLeast("0%")},
		"at least 100%":          {change: atLeast("100%")},
		"at least 101%":          {change: atLeast("101%"), want: badMin},
		"an available policy without a bound": {
			change: available(appsv1alpha1.AvailablePolicy{}),
			want:   []errorAt{{field.ErrorTypeRequired, "rule.availablePolicy"}},
		},
		"adaptive policies are not evaluated": {
			change: available(appsv1alpha1.AvailablePolicy{
				MaxUnavailablePolicy: &appsv1alpha1.AdaptivePolicy{},
				MinAvailablePolicy:   &appsv1alpha1.AdaptivePolicy{},
			}),
			want: []errorAt{
				{field.ErrorTypeForbidden, "rule.availablePolicy.maxUnavailablePolicy"},
				{field.ErrorTypeForbidden, "rule.availablePolicy.minAvailablePolicy"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			rule := appsv1alpha1.TransitionRule{
				Name:        "mine",
				Stage:       appsv1alpha1.StagePreCheck,
				Enforcement: appsv1alpha1.EnforcementEnforce,
				LabelCheck:  &appsv1alpha1.LabelCheck{Requires: matchLabels("a", "b")},
			}
			tc.change(&rule)
			var got []errorAt
			for _, err := range spec.Validate(rule, field.NewPath("rule")) {
				got = append(got, errorAt{err.Type, err.Field})
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("errors differ (-want +got):\n%s", diff)
			}
			_, err := spec.Rule(types.NamespacedName{Namespace: "shop", Name: "web"}, rule, &spec.Custom{})
			if (err != nil) != (len(tc.want) > 0) {
				t.Errorf("compiling: %v", err)
			}
		})
	}
}

func rego(rego appsv1alpha1.RegoRule) func(*appsv1alpha1.TransitionRule) {
	return func(rule *appsv1alpha1.TransitionRule) { rule.LabelCheck, rule.Rego = nil, &rego }
}

func parameters(encoded string) *apiextensionsv1.JSON {
	return &apiextensionsv1.JSON{Raw: []byte(encoded)}
}

func TestErrorsHaveTheField(t *testing.T) {
	_, err := spec.Rule(types.NamespacedName{Namespace: "shop", Name: "web"}, appsv1alpha1.TransitionRule{
		Name:            "budget",
		AvailablePolicy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: bound("50 %")},
	}, nil)
	aggregate := utilerrors.Aggregate(nil)
	if !errors.As(err, &aggregate) || len(aggregate.Errors()) != 1 {
		t.Fatalf("got %v, want one aggregated error", err)
	}
	invalid := &field.Error{}
	if !errors.As(aggregate.Errors()[0], &invalid) {
		t.Fatalf("got %v, want a field error", err)
	}
	if want := "spec.rules[budget].availablePolicy.maxUnavailableValue"; invalid.Field != want {
		t.Errorf("field is %s, want %s", invalid.Field, want)
	}
}

func TestNormalize(t *testing.T) {
	nested := func(value any) *appsv1alpha1.AvailableValue {
		return &appsv1alpha1.AvailableValue{Value: bound(value)}
	}
	for name, tc := range map[string]struct {
		stage        appsv1alpha1.TransitionStage
		policy       *appsv1alpha1.AvailablePolicy
		wantStage    appsv1alpha1.TransitionStage
		wantPolicy   *appsv1alpha1.AvailablePolicy
		wantWarnings []string
		wantErrors   []string
	}{
		"defaults": {
			wantStage: appsv1alpha1.StagePreCheck,
		},
		"canonical spellings stay": {
			stage:      appsv1alpha1.StagePostCheck,
			policy:     &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: bound(1), MinAvailableValue: bound("5%")},
			wantStage:  appsv1alpha1.StagePostCheck,
			wantPolicy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: bound(1), MinAvailableValue: bound("5%")},
		},
		"older stage before traffic goes off": {
			stage:        "PreTrafficOff",
			wantStage:    appsv1alpha1.StagePreCheck,
			wantWarnings: []string{"rule.stage: PreTrafficOff is the older name of PreCheck, which is stored instead"},
		},
		"older stage before traffic comes on": {
			stage:        "PreTrafficOn",
			wantStage:    appsv1alpha1.StagePostCheck,
			wantWarnings: []string{"rule.stage: PreTrafficOn is the older name of PostCheck, which is stored instead"},
		},
		"an unknown stage is left for validation": {
			stage:     "Sometime",
			wantStage: "Sometime",
		},
		"nested bounds move": {
			policy:     &appsv1alpha1.AvailablePolicy{MaxUnavailable: nested("50%"), MinAvailable: nested(5)},
			wantStage:  appsv1alpha1.StagePreCheck,
			wantPolicy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: bound("50%"), MinAvailableValue: bound(5)},
		},
		"both spellings of the same value": {
			policy:     &appsv1alpha1.AvailablePolicy{MaxUnavailable: nested(5), MaxUnavailableValue: bound(5)},
			wantStage:  appsv1alpha1.StagePreCheck,
			wantPolicy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: bound(5)},
		},
		"both spellings of different values": {
			policy: &appsv1alpha1.AvailablePolicy{
				MaxUnavailable: nested(5), MaxUnavailableValue: bound(6),
				MinAvailable: nested(5), MinAvailableValue: bound("5%"),
			},
			wantStage: appsv1alpha1.StagePreCheck,
			wantPolicy: &appsv1alpha1.AvailablePolicy{
				MaxUnavailable: nested(5), MaxUnavailableValue: bound(6),
				MinAvailable: nested(5), MinAvailableValue: bound("5%"),
			},
			wantErrors: []string{
				"rule.availablePolicy.maxUnavailable.value",
				"rule.availablePolicy.minAvailable.value",
			},
		},
		"no bound in either spelling": {
			policy:     &appsv1alpha1.AvailablePolicy{},
			wantPolicy: &appsv1alpha1.AvailablePolicy{},
			wantStage:  appsv1alpha1.StagePreCheck,
			wantErrors: []string{"rule.availablePolicy"},
		},
		"an adaptive policy alone is left for validation": {
			policy:     &appsv1alpha1.AvailablePolicy{MinAvailablePolicy: &appsv1alpha1.AdaptivePolicy{}},
			wantStage:  appsv1alpha1.StagePreCheck,
			wantPolicy: &appsv1alpha1.AvailablePolicy{MinAvailablePolicy: &appsv1alpha1.AdaptivePolicy{}},
		},
		"a nested spelling without a value": {
			policy:     &appsv1alpha1.AvailablePolicy{MinAvailable: &appsv1alpha1.AvailableValue{}},
			wantStage:  appsv1alpha1.StagePreCheck,
			wantPolicy: &appsv1alpha1.AvailablePolicy{MinAvailable: &appsv1alpha1.AvailableValue{}},
			wantErrors: []string{"rule.availablePolicy.minAvailable.value"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			rule := appsv1alpha1.TransitionRule{Name: "mine", Stage: tc.stage, AvailablePolicy: tc.policy}
			warnings, errs := spec.Normalize(&rule, field.NewPath("rule"))
			want := appsv1alpha1.TransitionRule{
				Name: "mine", Stage: tc.wantStage, Enforcement: appsv1alpha1.EnforcementEnforce,
				AvailablePolicy: tc.wantPolicy,
			}
			if diff := cmp.Diff(want, rule); diff != "" {
				t.Errorf("rule differs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantWarnings, warnings); diff != "" {
				t.Errorf("warnings differ (-want +got):\n%s", diff)
			}
			var fields []string
			for _, err := range errs {
				fields = append(fields, err.Field)
			}
			if diff := cmp.Diff(tc.wantErrors, fields); diff != "" {
				t.Errorf("errors differ (-want +got):\n%s", diff)
			}
			if again, _ := spec.Normalize(&rule, field.NewPath("rule")); len(again) > 0 {
				t.Errorf("folding again warns: %v", again)
			}
		})
	}
}

func TestNormalizeIgnoresOtherKinds(t *testing.T) {
	rule := appsv1alpha1.TransitionRule{LabelCheck: &appsv1alpha1.LabelCheck{}}
	if _, errs := spec.Normalize(&rule, field.NewPath("rule")); len(errs) > 0 {
		t.Error(errs)
	}
	if rule.AvailablePolicy != nil {
		t.Errorf("an availablePolicy appeared: %v", rule.AvailablePolicy)
	}
}
