package podfacts_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/state/podfacts"
	"github.com/podops-dev/podops/test/builders"
)

// TestNewPodsHaveCreateRules shows which PodTransitionRules apply to the creation of a pod.
func TestNewPodsHaveCreateRules(t *testing.T) {
	smoke := appsv1alpha1.TransitionRule{
		Name: "smoke", Stage: appsv1alpha1.StagePostCheck,
		LabelCheck: &appsv1alpha1.LabelCheck{Requires: &metav1.LabelSelector{MatchLabels: map[string]string{"smoke": "passed"}}},
	}
	with := func(change func(*appsv1alpha1.TransitionRule)) []appsv1alpha1.TransitionRule {
		rule := *smoke.DeepCopy()
		change(&rule)
		return []appsv1alpha1.TransitionRule{rule}
	}
	for sentence, tc := range map[string]struct {
		rules     []appsv1alpha1.TransitionRule
		selector  map[string]string // app=web
		namespace string            // default
		change    func(*corev1.Pod)
		err       error
		want      bool
	}{
		"a PostCheck rule":                     {rules: []appsv1alpha1.TransitionRule{smoke}, want: true},
		"a PreCheck rule":                      {rules: with(func(r *appsv1alpha1.TransitionRule) { r.Stage = appsv1alpha1.StagePreCheck })},
		"a rule without a stage":               {rules: with(func(r *appsv1alpha1.TransitionRule) { r.Stage = "" })},
		"a rule that only warns":               {rules: with(func(r *appsv1alpha1.TransitionRule) { r.Enforcement = appsv1alpha1.EnforcementWarn }), want: true},
		"a rule that is disabled":              {rules: with(func(r *appsv1alpha1.TransitionRule) { r.Disabled = true })},
		"a rule of the type create":            {rules: with(func(r *appsv1alpha1.TransitionRule) { r.Conditions = []string{"create"} }), want: true},
		"a rule of other types":                {rules: with(func(r *appsv1alpha1.TransitionRule) { r.Conditions = []string{"update"} })},
		"a rule whose filter excludes it":      {rules: with(func(r *appsv1alpha1.TransitionRule) { r.Filter = filtered("db") })},
		"a rule whose filter has it":           {rules: with(func(r *appsv1alpha1.TransitionRule) { r.Filter = filtered("web") }), want: true},
		"a rule that the pod skips":            {rules: []appsv1alpha1.TransitionRule{smoke}, change: func(pod *corev1.Pod) { pod.Annotations = skips("smoke") }},
		"a PodTransitionRule of other pods":    {rules: []appsv1alpha1.TransitionRule{smoke}, selector: map[string]string{"app": "db"}},
		"a PodTransitionRule elsewhere":        {rules: []appsv1alpha1.TransitionRule{smoke}, namespace: "other"},
		"a pod whose gate was written":         {rules: []appsv1alpha1.TransitionRule{smoke}, change: func(pod *corev1.Pod) { *pod = *webPod().Obj() }},
		"a pod without the control label":      {rules: []appsv1alpha1.TransitionRule{smoke}, change: func(pod *corev1.Pod) { delete(pod.Labels, appsv1alpha1.ControlLabelKey) }},
		"rules that cannot be read, which may": {err: errors.New("away"), want: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			object := &appsv1alpha1.PodTransitionRule{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
			object.Spec.Rules, object.Spec.Selector = tc.rules, &metav1.LabelSelector{MatchLabels: web}
			if tc.selector != nil {
				object.Spec.Selector.MatchLabels = tc.selector
			}
			if tc.namespace != "" {
				object.Namespace = tc.namespace
			}
			pod := builders.MakePod("web-0").Label("app", "web").Obj()
			if tc.change != nil {
				tc.change(pod)
			}
			cached := rules(t, tc.err, object)
			facts, err := podfacts.New(cached, cached, nil, clocktesting.NewFakeClock(builders.Epoch)).Gather(t.Context(), pod)
			if facts.HasCreateRules != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("got %t and %v, want %t and %v", facts.HasCreateRules, err, tc.want, tc.err)
			}
		})
	}
}

// rules returns a client that has the objects. Lists of PodTransitionRules fail if err is not nil.
func rules(t *testing.T, err error, objects ...client.Object) client.Client {
	t.Helper()
	return failing(t, err, &appsv1alpha1.PodTransitionRuleList{}, objects...)
}

// failing returns a client that has the objects. Lists of a kind fail if err is not nil.
func failing(t *testing.T, err error, kind client.ObjectList, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, appsv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if reflect.TypeOf(list) == reflect.TypeOf(kind) && err != nil {
				return err
			}
			return c.List(ctx, list, options...)
		},
	}).Build()
}

func filtered(app string) *appsv1alpha1.TransitionRuleFilter {
	return &appsv1alpha1.TransitionRuleFilter{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}
}

func skips(name string) map[string]string {
	return map[string]string{appsv1alpha1.SkipRulesAnnotationKey: `{"skipRules":["` + name + `"]}`}
}
