package policyusers_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/state/policyusers"
)

func object(namespace, name string, rules ...appsv1alpha1.TransitionRule) *appsv1alpha1.PodTransitionRule {
	return &appsv1alpha1.PodTransitionRule{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       appsv1alpha1.PodTransitionRuleSpec{Rules: rules},
	}
}

func refersTo(policy, rule string) appsv1alpha1.TransitionRule {
	return appsv1alpha1.TransitionRule{Name: rule, Rego: &appsv1alpha1.RegoRule{
		PolicyRef:  &appsv1alpha1.PolicyReference{Name: policy},
		Parameters: &apiextensionsv1.JSON{Raw: []byte(`{"of":"` + rule + `"}`)},
	}}
}

func inline(rule string) appsv1alpha1.TransitionRule {
	return appsv1alpha1.TransitionRule{Name: rule, Rego: &appsv1alpha1.RegoRule{Module: "package rule"}}
}

func TestListIsSortedAndComplete(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := appsv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	disabled := refersTo("freeze", "b")
	disabled.Disabled = true
	reader := fake.NewClientBuilder().WithScheme(scheme).WithIndex(&appsv1alpha1.PodTransitionRule{}, policyusers.Field, policyusers.Index).
		WithObjects(
			object("two", "web", refersTo("freeze", "z"), inline("x"), refersTo("freeze", "a")),
			object("one", "web", refersTo("other", "a"), disabled),
			object("one", "db", refersTo("freeze", "c")),
			object("one", "none", inline("a"), appsv1alpha1.TransitionRule{Name: "l", LabelCheck: &appsv1alpha1.LabelCheck{}}),
		).Build()

	users, err := policyusers.List(t.Context(), reader, "freeze")
	if err != nil {
		t.Fatal(err)
	}
	user := func(namespace, name, rule string) policyusers.User {
		return policyusers.User{
			Object: types.NamespacedName{Namespace: namespace, Name: name}, Rule: rule, Parameters: []byte(`{"of":"` + rule + `"}`), Active: rule != "b",
		}
	}
	want := []policyusers.User{user("one", "db", "c"), user("one", "web", "b"), user("two", "web", "a"), user("two", "web", "z")}
	if diff := cmp.Diff(want, users); diff != "" {
		t.Errorf("users (-want +got):\n%s", diff)
	}
}

func TestIndexNamesEachPolicyOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		object client.Object
		want   []string
	}{
		"sorted":       {object("a", "b", refersTo("z", "1"), refersTo("a", "2"), refersTo("z", "3"), inline("4")), []string{"a", "z"}},
		"no rule":      {object("a", "b"), nil},
		"another kind": {&corev1.Pod{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, policyusers.Index(tc.object)); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
		})
	}
}

// TestActive shows which rules can deny an edit of their policy.
func TestActive(t *testing.T) {
	disabled := refersTo("freeze", "b")
	disabled.Disabled = true
	status := func(o *appsv1alpha1.PodTransitionRule, generation, observed int64, selected int32) *appsv1alpha1.PodTransitionRule {
		o.Generation, o.Status.ObservedGeneration, o.Status.Selected = generation, observed, selected
		return o
	}
	for name, tc := range map[string]struct {
		object *appsv1alpha1.PodTransitionRule
		want   bool
	}{
		"a rule that selects pods":              {status(object("a", "web", refersTo("freeze", "a")), 2, 2, 3), true},
		"a rule that selects nothing":           {status(object("a", "web", refersTo("freeze", "a")), 2, 2, 0), false},
		"a rule that is disabled":               {status(object("a", "web", disabled), 2, 2, 3), false},
		"a rule whose pods are not counted yet": {status(object("a", "web", refersTo("freeze", "a")), 1, 0, 0), true},
		"a rule that was edited just now":       {status(object("a", "web", refersTo("freeze", "a")), 3, 2, 0), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := len(policyusers.OnlyActive(policyusers.Of(tc.object, "freeze"))) == 1; got != tc.want {
				t.Errorf("active %t, want %t", got, tc.want)
			}
		})
	}
}
