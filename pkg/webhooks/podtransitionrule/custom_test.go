package podtransitionrule_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule/parameters"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/engine/opa/vet"
	"github.com/podops-dev/podops/pkg/webhookrule/webhookclient"
	"github.com/podops-dev/podops/pkg/webhooks/inspection"
	"github.com/podops-dev/podops/pkg/webhooks/podtransitionrule"
)

// checker reports modules as invalid that contain "bad", has no time for "slow", and returns an
// error for "odd".
type checker struct{ checked []inspection.Module }

func (c *checker) Check(_ context.Context, modules ...inspection.Module) (field.ErrorList, error) {
	c.checked = append(c.checked, modules...)
	var errs field.ErrorList
	for _, module := range modules {
		switch module.Source {
		case "bad":
			errs = append(errs, field.Invalid(module.Path, module.File+":1:1", "rego_parse_error: package expected"))
		case "slow":
			return nil, inspection.ErrTimeout
		case "odd":
			return nil, errors.New("no child process")
		}
	}
	return errs, nil
}

// Known inspects the module.
func (c *checker) Known(module inspection.Module) (opa.Inspection, bool) {
	parsed, entry, err := vet.Read(module.Source, vet.Capabilities())
	if err != nil {
		return opa.Inspection{}, false
	}
	return opa.Inspection{Entry: entry, Hints: vet.Hints(parsed, entry), Parameters: vet.ReadParameters(parsed[vet.File])}, true
}

// validator returns a Validator in a cluster without policies.
func validator(t *testing.T) *podtransitionrule.Validator {
	t.Helper()
	return podtransitionrule.NewValidator(decoder(t), policies(t), policies(t), &checker{}, webhookclient.Guard{}.CheckURL)
}

// policies reads PodTransitionPolicies from a cache, or from the API server.
func policies(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := appsv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

// calendar returns a library.
func calendar() *appsv1alpha1.PodTransitionPolicy {
	return &appsv1alpha1.PodTransitionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "calendar"}, Spec: appsv1alpha1.PodTransitionPolicySpec{Module: "package lib.calendar"},
	}
}

// freeze returns a PodTransitionPolicy with a schema of parameters; empty: without one.
func freeze(schema string) *appsv1alpha1.PodTransitionPolicy {
	policy := &appsv1alpha1.PodTransitionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "freeze"}, Spec: appsv1alpha1.PodTransitionPolicySpec{Module: "package rule"},
	}
	if schema != "" {
		policy.Spec.Parameters = &appsv1alpha1.PolicyParameters{OpenAPIV3Schema: &apiextensionsv1.JSON{Raw: []byte(schema)}}
	}
	return policy
}

const minutes = `{"type":"object","properties":{"minutes":{"type":"integer","minimum":1}}}`

func edited(old, object string) admission.Request {
	updated := request(object)
	updated.Operation, updated.OldObject = admissionv1.Update, runtime.RawExtension{Raw: []byte(old)}
	return updated
}

// rego returns a PodTransitionRule with one rule of kind rego for each text.
func rego(texts ...string) string { return labelled("", texts...) }

func labelled(metadata string, texts ...string) string {
	var rules []string
	for i, text := range texts {
		rules = append(rules, `{"name":"r`+string(rune('0'+i))+`","stage":"PreCheck","enforcement":"Enforce","rego":`+text+`}`)
	}
	return object(metadata, selectWeb, rules...)
}

func TestCustomRulesThatAreDenied(t *testing.T) {
	for name, tc := range map[string]struct {
		policies []client.Object
		request  admission.Request
		want     []string // in the order of the message
	}{
		"an invalid module, with the location": {
			request: request(rego(`{"module":"good"}`, `{"module":"bad"}`)),
			want:    []string{`spec.rules[1].rego.module: Invalid value: "web/r1.rego:1:1": rego_parse_error: package expected`},
		},
		"a module that becomes invalid": {
			request: edited(rego(`{"module":"good"}`), rego(`{"module":"bad"}`)),
			want:    []string{`spec.rules[0].rego.module: Invalid value: "web/r0.rego:1:1": rego_parse_error: package expected`},
		},
		"parameters that are too large for a policy that does not exist": {
			request: request(rego(`{"policyRef":{"name":"freeze"},"parameters":{"a":"` + strings.Repeat("x", parameters.MaxBytes) + `"}}`)),
			want:    []string{`spec.rules[0].rego.parameters: Too long`},
		},
		"a policy that cannot be used": {
			policies: []client.Object{freeze(`{"type":"string"}`)}, request: request(rego(`{"policyRef":{"name":"freeze"}}`)),
			want: []string{`spec.rules[0].rego.policyRef.name: Invalid value: "freeze": this PodTransitionPolicy cannot be used until its schema is right: spec.parameters`},
		},
		"a library": {
			policies: []client.Object{calendar()}, request: request(rego(`{"policyRef":{"name":"calendar"}}`)),
			want: []string{`spec.rules[0].rego.policyRef.name: Invalid value: "calendar": this PodTransitionPolicy is a library: refer to one that imports it`},
		},
		"parameters that do not fit, each by its name": {
			policies: []client.Object{freeze(minutes)},
			request:  request(rego(`{"policyRef":{"name":"freeze"},"parameters":{"minutes":0}}`, `{"policyRef":{"name":"freeze"},"parameters":{"minuts":1}}`)),
			want: []string{
				`spec.rules[0].rego.parameters.minutes: Invalid value: 0: should be greater than or equal to 1`,
				`spec.rules[1].rego.parameters.minuts: Forbidden: the policy has no such parameter; it has minutes`,
			},
		},
		"parameters for a policy that takes none": {
			policies: []client.Object{freeze("")}, request: request(rego(`{"policyRef":{"name":"freeze"},"parameters":{"minutes":1}}`)),
			want: []string{`spec.rules[0].rego.parameters.minutes: Forbidden: the policy takes no parameters`},
		},
		"parameters of a module that are too large": {
			request: request(rego(`{"module":"good","parameters":{"a":"` + strings.Repeat("x", parameters.MaxBytes) + `"}}`)),
			want:    []string{`spec.rules[0].rego.parameters: Too long: may not be more than 32768 bytes`},
		},
		"all of these errors at once": {
			policies: []client.Object{freeze("")},
			request:  request(rego(`{"policyRef":{"name":"freeze"},"parameters":{"a":1}}`, `{"module":"bad"}`)),
			want:     []string{`spec.rules[0].rego.parameters.a: Forbidden`, `spec.rules[1].rego.module: Invalid value`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := podtransitionrule.NewValidator(decoder(t), policies(t, tc.policies...), policies(t, tc.policies...), &checker{}, webhookclient.Guard{}.CheckURL)
			response := v.Handle(t.Context(), tc.request)
			if response.Allowed || response.Result.Code != http.StatusUnprocessableEntity {
				t.Fatalf("got %+v", response.Result)
			}
			rest := response.Result.Message
			for _, text := range tc.want {
				_, after, found := strings.Cut(rest, text)
				if !found {
					t.Errorf("message %q lacks %q", response.Result.Message, text)
				}
				rest = after
			}
		})
	}
}

func TestCustomRulesThatAreAllowed(t *testing.T) {
	for name, tc := range map[string]struct {
		cached, apiReader []client.Object
		request           admission.Request
		want              []string // modules that were checked
	}{
		"a module": {request: request(rego(`{"module":"good","parameters":{"a":1}}`)), want: []string{"good"}},
		"a module of two rules, checked once": {
			request: request(rego(`{"module":"good"}`, `{"module":"good"}`)), want: []string{"good"},
		},
		"a reference with parameters": {
			cached: []client.Object{freeze(minutes)}, request: request(rego(`{"policyRef":{"name":"freeze"},"parameters":{"minutes":1}}`)),
		},
		"a reference to a policy that the cache does not have yet": {
			apiReader: []client.Object{freeze("")}, request: request(rego(`{"policyRef":{"name":"freeze"}}`)),
		},
		"parameters that fit since an edit of the policy": {
			cached: []client.Object{freeze("")}, apiReader: []client.Object{freeze(minutes)},
			request: request(rego(`{"policyRef":{"name":"freeze"},"parameters":{"minutes":1}}`)),
		},
		"an edit of another rule, without a check of the stored module": {
			request: edited(
				rego(`{"module":"bad"}`, `{"policyRef":{"name":"gone"}}`, `{"module":"good"}`),
				rego(`{"module":"bad"}`, `{"policyRef":{"name":"gone"}}`, `{"module":"better"}`)),
			want: []string{"better"},
		},
		"a module that moves to another rule, or gets other parameters": {
			request: edited(rego(`{"module":"good"}`, `{"module":"best"}`), rego(`{"module":"best"}`, `{"module":"best","parameters":{"a":1}}`)),
		},
		"other labels on any stored spec": {
			request: edited(rego(`{"policyRef":{"name":"gone"}}`, `{}`), labelled(`,"labels":{"a":"b"}`, `{"policyRef":{"name":"gone"}}`, `{}`)),
		},
		"a terminating rule": {
			request: edited(rego(`{"module":"good"}`), labelled(`,"deletionTimestamp":"2026-01-01T00:00:00Z"`, `{"module":"bad"}`)),
		},
	} {
		t.Run(name, func(t *testing.T) {
			checked := &checker{}
			v := podtransitionrule.NewValidator(decoder(t), policies(t, tc.cached...), policies(t, tc.apiReader...), checked, webhookclient.Guard{}.CheckURL)
			if response := v.Handle(t.Context(), tc.request); !response.Allowed {
				t.Fatalf("got %+v", response.Result)
			}
			var got []string
			for _, module := range checked.checked {
				got = append(got, module.Source)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("checked (-want +got):\n%s", diff)
			}
		})
	}
}

// TestARuleMayComeBeforeItsPolicy matters for tools that apply or dry-run both at once without an
// order; the rule fails closed until the policy exists.
func TestARuleMayComeBeforeItsPolicy(t *testing.T) {
	v := podtransitionrule.NewValidator(decoder(t), policies(t), policies(t), &checker{}, webhookclient.Guard{}.CheckURL)
	response := v.Handle(t.Context(), request(rego(`{"policyRef":{"name":"freeze"},"parameters":{"minutes":1}}`)))
	want := []string{`spec.rules[0].rego.policyRef.name: there is no PodTransitionPolicy "freeze": until it is created the rule withholds every pod, reason PolicyNotFound`}
	if diff := cmp.Diff(want, response.Warnings); !response.Allowed || diff != "" {
		t.Errorf("allowed %t, warnings (-want +got):\n%s", response.Allowed, diff)
	}
}

// TestProbableMistakesAreWarnings: the module compiles, and permits every pod without the label.
func TestProbableMistakesAreWarnings(t *testing.T) {
	const module = `package rule\n\ndefault allow := true\n\nallow := false if input.pod.labels.tier != \"gold\"\n`
	response := validator(t).Handle(t.Context(), request(rego(`{"module":"`+module+`"}`)))
	want := []string{"spec.rules[0].rego.module: allow is true by default: a condition that an absent fact leaves undefined permits the pod " +
		"(row 3, column 1 of the module)"}
	if diff := cmp.Diff(want, response.Warnings); !response.Allowed || diff != "" {
		t.Errorf("allowed %t, warnings (-want +got):\n%s", response.Allowed, diff)
	}
}

// TestParametersOfInlineModules: no schema rejects a parameter that is misspelt, and a deny that reads it permits
// every pod.
func TestParametersOfInlineModules(t *testing.T) {
	const module = `"module":"package rule\n\ndeny contains \"wait\" if input.parameters.min_age > 0\n"`
	for name, test := range map[string]struct {
		parameters string
		want       []string
	}{
		"set": {parameters: `{"min_age":5}`},
		"misspelt": {parameters: `{"minAge":5}`, want: []string{
			`spec.rules[0].rego.parameters: the rule sets the parameter "minAge", which the module does not read; it reads min_age (row 1, column 1 of the module)`,
			`spec.rules[0].rego.parameters: the module reads the parameter "min_age", which the rule does not set: the condition with it is undefined; the rule sets minAge (row 3, column 42 of the module)`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			response := validator(t).Handle(t.Context(), request(rego(`{`+module+`,"parameters":`+test.parameters+`}`)))
			if diff := cmp.Diff(test.want, response.Warnings); !response.Allowed || diff != "" {
				t.Errorf("allowed %t, warnings (-want +got):\n%s", response.Allowed, diff)
			}
		})
	}
}

func TestCustomRulesThatCannotBeChecked(t *testing.T) {
	unreadable := interceptor.NewClient(policies(t), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("connection refused")
		},
	})
	for name, tc := range map[string]struct {
		text string
		code int32
		want string
	}{
		"after a timeout":      {`{"module":"slow"}`, http.StatusGatewayTimeout, "could not be checked in time"},
		"after an error":       {`{"module":"odd"}`, http.StatusInternalServerError, "no child process"},
		"without their policy": {`{"policyRef":{"name":"freeze"}}`, http.StatusInternalServerError, `reading PodTransitionPolicy "freeze": connection refused`},
	} {
		t.Run(name, func(t *testing.T) {
			v := podtransitionrule.NewValidator(decoder(t), unreadable, unreadable, &checker{}, webhookclient.Guard{}.CheckURL)
			response := v.Handle(t.Context(), request(rego(tc.text)))
			if response.Allowed || response.Result.Code != tc.code || !strings.Contains(response.Result.Message, tc.want) {
				t.Errorf("got %+v", response.Result)
			}
		})
	}
}

func TestManyRulesAreCheckedInTime(t *testing.T) {
	late, cancel := context.WithCancel(t.Context())
	cancel()
	v := podtransitionrule.NewValidator(decoder(t), policies(t), policies(t), &checker{}, webhookclient.Guard{}.CheckURL)
	response := v.Handle(late, request(rego(`{"policyRef":{"name":"freeze"}}`)))
	if response.Allowed || response.Result.Code != http.StatusGatewayTimeout || !strings.HasPrefix(response.Result.Message, "spec.rules[0]: ") {
		t.Errorf("got %+v", response.Result)
	}
}
