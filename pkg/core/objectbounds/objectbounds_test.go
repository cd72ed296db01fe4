package objectbounds_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/objectbounds"
)

func numbered(count int) []string {
	values := make([]string, count)
	for i := range values {
		values[i] = fmt.Sprintf("v%d", i)
	}
	return values
}

func in(values ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "In", Values: values}}}
}

func labels(count int) *metav1.LabelSelector {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for _, key := range numbered(count) {
		selector.MatchLabels[key] = "x"
	}
	return selector
}

func expressions(count, values int) *metav1.LabelSelector {
	selector := &metav1.LabelSelector{}
	for range count {
		selector.MatchExpressions = append(selector.MatchExpressions, in(numbered(values)...).MatchExpressions...)
	}
	return selector
}

func requiring(name string, selector *metav1.LabelSelector) appsv1alpha1.TransitionRule {
	return appsv1alpha1.TransitionRule{Name: name, LabelCheck: &appsv1alpha1.LabelCheck{Requires: selector}}
}

func module(name string, size int) appsv1alpha1.TransitionRule {
	return appsv1alpha1.TransitionRule{Name: name, Rego: &appsv1alpha1.RegoRule{Module: strings.Repeat("<", size)}}
}

func times(count int, rule appsv1alpha1.TransitionRule) []appsv1alpha1.TransitionRule {
	rules := make([]appsv1alpha1.TransitionRule, count)
	for i := range rules {
		rules[i] = rule
	}
	return rules
}

func TestRule(t *testing.T) {
	for name, tc := range map[string]struct {
		spec appsv1alpha1.PodTransitionRuleSpec
		want string
	}{
		"as many labels as allowed":                {appsv1alpha1.PodTransitionRuleSpec{Selector: labels(64)}, ""},
		"a label more":                             {appsv1alpha1.PodTransitionRuleSpec{Selector: labels(65)}, "spec.selector.matchLabels: Too many"},
		"as many expressions as allowed":           {appsv1alpha1.PodTransitionRuleSpec{Selector: expressions(32, 64)}, ""},
		"an expression more":                       {appsv1alpha1.PodTransitionRuleSpec{Selector: expressions(33, 1)}, "spec.selector.matchExpressions: Too many"},
		"as many values as allowed":                {appsv1alpha1.PodTransitionRuleSpec{Selector: in(numbered(64)...)}, ""},
		"a value more":                             {appsv1alpha1.PodTransitionRuleSpec{Selector: in(numbered(65)...)}, "spec.selector.matchExpressions[0].values: Too many"},
		"150,000 values":                           {appsv1alpha1.PodTransitionRuleSpec{Selector: in(numbered(150_000)...)}, "spec.selector.matchExpressions[0].values: Too many"},
		"a long value":                             {appsv1alpha1.PodTransitionRuleSpec{Selector: in(strings.Repeat("v", 64))}, "spec.selector.matchExpressions[0].values[0]: Too long"},
		"a long key":                               {appsv1alpha1.PodTransitionRuleSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{strings.Repeat("k", 318): "v"}}}, "spec.selector.matchLabels: Too long"},
		"a long label":                             {appsv1alpha1.PodTransitionRuleSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"k": strings.Repeat("v", 64)}}}, "spec.selector.matchLabels[k]: Too long"},
		"a large labelCheck":                       {appsv1alpha1.PodTransitionRuleSpec{Rules: times(1, requiring("a", labels(65)))}, "spec.rules[0].labelCheck.requires.matchLabels: Too many"},
		"a large filter":                           {appsv1alpha1.PodTransitionRuleSpec{Rules: []appsv1alpha1.TransitionRule{{Filter: &appsv1alpha1.TransitionRuleFilter{LabelSelector: labels(65)}}}}, "spec.rules[0].filter.labelSelector.matchLabels: Too many"},
		"as many values in all as allowed":         {appsv1alpha1.PodTransitionRuleSpec{Rules: times(2, requiring("a", expressions(32, 64)))}, ""},
		"more values in all":                       {appsv1alpha1.PodTransitionRuleSpec{Selector: in("x"), Rules: times(2, requiring("a", expressions(32, 64)))}, "its selectors have 4097 labels and values, at most 4096 are allowed"},
		"64 rules":                                 {appsv1alpha1.PodTransitionRuleSpec{Rules: times(64, requiring("a", in("x")))}, ""},
		"65 rules":                                 {appsv1alpha1.PodTransitionRuleSpec{Rules: times(65, requiring("a", in("x")))}, "spec.rules: Too many"},
		"15 full modules":                          {appsv1alpha1.PodTransitionRuleSpec{Rules: times(15, module("a", 16384))}, ""},
		"16 full modules and the rest of the spec": {appsv1alpha1.PodTransitionRuleSpec{Rules: times(16, module("a", 16384))}, "spec: Forbidden: has 262"},
		"parameters that are large, unescaped":     {appsv1alpha1.PodTransitionRuleSpec{Rules: []appsv1alpha1.TransitionRule{{Rego: &appsv1alpha1.RegoRule{Parameters: &apiextensionsv1.JSON{Raw: json.RawMessage(`{"a":"` + strings.Repeat("x", 300_000) + `"}`)}}}}}, "spec: Forbidden: has 300"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := objectbounds.Rule(&tc.spec)
			switch {
			case tc.want == "" && len(errs) > 0:
				t.Errorf("got %v", errs)
			case tc.want != "" && (len(errs) == 0 || !strings.Contains(errs[0].Error(), tc.want)):
				t.Errorf("got %v, want %s", errs, tc.want)
			}
		})
	}
}

func TestEncodedCountsAsRuleDoes(t *testing.T) {
	spec := appsv1alpha1.PodTransitionRuleSpec{Rules: times(15, module("a", 16384))}
	escaped, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	if len(escaped) < 6*15*16384 {
		t.Fatal("< is not escaped")
	}
	if errs := objectbounds.Encoded(escaped, appsv1alpha1.MaxRuleSpecBytes); len(errs) > 0 {
		t.Error(errs)
	}
	if errs := objectbounds.Encoded(append(escaped, escaped...), appsv1alpha1.MaxRuleSpecBytes); len(errs) != 1 {
		t.Error("twice as much is accepted")
	}
}

func hostile() *appsv1alpha1.PodTransitionRule {
	warn, off, after := module("b", 1), module("c", 1), module("d", 1)
	warn.Enforcement, off.Disabled, after.Stage = appsv1alpha1.EnforcementWarn, true, appsv1alpha1.StagePostCheck
	return &appsv1alpha1.PodTransitionRule{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "n", Name: "web", UID: "1", Generation: 3, ResourceVersion: "7",
			Labels:      map[string]string{"a": "b"},
			Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}", "podops.kusionstack.io/x": "y"},
		},
		Spec: appsv1alpha1.PodTransitionRuleSpec{
			Selector: in("web"),
			Rules:    append(times(30, module("a", 16384)), warn, off, after),
		},
		Status: appsv1alpha1.PodTransitionRuleStatus{
			Targets: []string{"x"}, Permits: &appsv1alpha1.PermitRecord{ViewResourceVersion: "5"},
		},
	}
}

func load[T any](t *testing.T, object *T) *T {
	t.Helper()
	loaded, err := objectbounds.Load(object)
	if err != nil {
		t.Fatal(err)
	}
	return loaded.(*T)
}

func TestLoadReplacesALargeRule(t *testing.T) {
	stub := load(t, hostile())
	want := []appsv1alpha1.TransitionRule{
		{Name: "too-large-precheck-enforce", Stage: appsv1alpha1.StagePreCheck, Enforcement: appsv1alpha1.EnforcementEnforce},
		{Name: "too-large-precheck-warn", Stage: appsv1alpha1.StagePreCheck, Enforcement: appsv1alpha1.EnforcementWarn},
		{Name: "too-large-postcheck-enforce", Stage: appsv1alpha1.StagePostCheck, Enforcement: appsv1alpha1.EnforcementEnforce},
	}
	if diff := cmp.Diff(want, stub.Spec.Rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(in("web"), stub.Spec.Selector); diff != "" {
		t.Errorf("selector (-want +got):\n%s", diff)
	}
	if err := objectbounds.TooLarge(stub); !errors.Is(err, objectbounds.ErrTooLarge) || !strings.Contains(err.Error(), "has 49") {
		t.Errorf("got %v", err)
	}
	if stub.Generation != 3 || stub.ResourceVersion != "7" || stub.UID != "1" || stub.Status.Permits == nil || stub.Status.Targets != nil {
		t.Errorf("got %+v", stub)
	}
	again := load(t, stub.DeepCopy())
	if diff := cmp.Diff(stub, again); diff != "" {
		t.Errorf("the second time (-first +second):\n%s", diff)
	}
}

func TestLoadDropsASelectorOverItsBounds(t *testing.T) {
	object := hostile()
	object.Spec.Selector = in(numbered(150_000)...)
	stub := load(t, object)
	if stub.Spec.Selector != nil || objectbounds.TooLarge(stub) == nil {
		t.Errorf("got %+v", stub.Spec)
	}
	if size := len(must(json.Marshal(stub))); size > 4096 {
		t.Errorf("a stub has %d bytes", size)
	}
}

func must(data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return data
}

func TestLoadKeepsObjectsWithinTheBounds(t *testing.T) {
	object := hostile()
	object.Spec.Rules = object.Spec.Rules[:2]
	for key := range load(t, hostile()).Annotations {
		object.Annotations[key] = "1"
	}
	want := object.Spec.DeepCopy()
	loaded := load(t, object)
	if diff := cmp.Diff(*want, loaded.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if err := objectbounds.TooLarge(loaded); err != nil {
		t.Errorf("the annotation of a user is used: %v", err)
	}
	if got := objectbounds.LoadedSize(loaded); got != objectbounds.RuleSize(want) || got < 2*16384 {
		t.Errorf("it counts for %d bytes", got)
	}
	if loaded.Labels != nil || loaded.Annotations["kubectl.kubernetes.io/last-applied-configuration"] != "" {
		t.Errorf("labels %v, annotations %v", loaded.Labels, loaded.Annotations)
	}
}

func TestLoadOfAPolicy(t *testing.T) {
	small := &appsv1alpha1.PodTransitionPolicy{Spec: appsv1alpha1.PodTransitionPolicySpec{Module: "package rule"}}
	large := small.DeepCopy()
	large.Spec.Parameters = &appsv1alpha1.PolicyParameters{OpenAPIV3Schema: &apiextensionsv1.JSON{Raw: []byte(`{"a":"` + strings.Repeat("x", 200_000) + `"}`)}}
	if got := load(t, small); got.Spec.Module == "" || objectbounds.TooLarge(got) != nil {
		t.Errorf("got %+v", got)
	}
	for range 2 {
		large = load(t, large)
		if large.Spec.Module != "" || large.Spec.Parameters != nil || objectbounds.TooLarge(large) == nil {
			t.Errorf("got %+v", large)
		}
	}
}

func TestLoadPassesOtherTypes(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Hostname: "h", Priority: ptr.To[int32](1)}}
	if got := load(t, pod.DeepCopy()); !cmp.Equal(got, pod) {
		t.Errorf("got %+v", got)
	}
}
