package podtransitionpolicy_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/state/policyusers"
	"github.com/podops-dev/podops/pkg/webhooks/inspection"
	"github.com/podops-dev/podops/pkg/webhooks/podtransitionpolicy"
)

// checker reports the module "bad" as invalid, has no time for "slow", and returns an error for "odd".
type checker struct{ called []inspection.Module }

func (c *checker) Check(_ context.Context, modules ...inspection.Module) (field.ErrorList, error) {
	c.called = append(c.called, modules...)
	for _, module := range modules {
		switch main, _ := spec.Split(module.Source); {
		case strings.Contains(module.Source, "bad"):
			return field.ErrorList{field.Invalid(module.Path, module.File+":1:1", "rego_parse_error: package expected")}, nil
		case main == "slow":
			return nil, inspection.ErrTimeout
		case main == "odd":
			return nil, errors.New("no child process")
		}
	}
	return nil, nil
}

// Known has a hint about a module that is named odd.
func (c *checker) Known(module inspection.Module) (opa.Inspection, bool) {
	if strings.HasPrefix(module.Source, "odd module") {
		return opa.Inspection{Hints: []opa.Problem{{Row: 3, Column: 1, Code: "default-allow", Message: "allow is true by default"}, {Code: "missing-reason"}}}, true
	}
	return opa.Inspection{}, true
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := appsv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return scheme
}

func reader(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	return fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(objects...).
		WithIndex(&appsv1alpha1.PodTransitionRule{}, policyusers.Field, policyusers.Index).Build()
}

// policy returns a PodTransitionPolicy as a client sends it; metadata and spec are parts of its
// JSON.
func policy(metadata, spec string) string {
	return `{"apiVersion":"apps.kusionstack.io/v1alpha1","kind":"PodTransitionPolicy","metadata":{"name":"freeze"` + metadata + `},"spec":` + spec + `}`
}

func create(object string) admission.Request {
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(object)},
	}}
}

func edit(old, object string) admission.Request {
	request := create(object)
	request.Operation, request.OldObject = admissionv1.Update, runtime.RawExtension{Raw: []byte(old)}
	return request
}

const integerN = `,"parameters":{"openAPIV3Schema":{"type":"object","properties":{"n":{"type":"integer"}}}}`

func TestValidatorDenies(t *testing.T) {
	for name, tc := range map[string]struct {
		request admission.Request
		code    int32
		reason  metav1.StatusReason
		want    string
	}{
		"an invalid module": {
			create(policy("", `{"module":"bad"}`)), http.StatusUnprocessableEntity, metav1.StatusReasonInvalid,
			`PodTransitionPolicy.apps.kusionstack.io "freeze" is invalid: spec.module: Invalid value: "freeze.rego:1:1": rego_parse_error: package expected`,
		},
		"a module that becomes invalid": {
			edit(policy("", `{"module":"good"}`), policy("", `{"module":"bad"}`)), http.StatusUnprocessableEntity, metav1.StatusReasonInvalid,
			`PodTransitionPolicy.apps.kusionstack.io "freeze" is invalid: spec.module: Invalid value: "freeze.rego:1:1": rego_parse_error: package expected`,
		},
		"a schema that cannot be used": {
			create(policy("", `{"module":"good","parameters":{"openAPIV3Schema":{"type":"string"}}}`)),
			http.StatusUnprocessableEntity, metav1.StatusReasonInvalid,
			`PodTransitionPolicy.apps.kusionstack.io "freeze" is invalid: spec.parameters.openAPIV3Schema.type: Invalid value: "string": must be object at the root`,
		},
		"a module that could not be checked in time": {
			create(policy("", `{"module":"slow"}`)), http.StatusGatewayTimeout, metav1.StatusReasonTimeout,
			"the module could not be checked in time: try again, or make it simpler",
		},
		"a module of unknown result": {create(policy("", `{"module":"odd"}`)), http.StatusInternalServerError, "", "no child process"},
		"a body that is no policy": {
			create(`{`), http.StatusBadRequest, "", "decoding PodTransitionPolicy: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			validator := podtransitionpolicy.NewValidator(admission.NewDecoder(newScheme(t)), reader(t), reader(t), &checker{}, everything)
			response := validator.Handle(t.Context(), tc.request)
			if response.Allowed || response.Result.Code != tc.code || response.Result.Reason != tc.reason {
				t.Errorf("got %+v", response.Result)
			}
			if !strings.HasPrefix(response.Result.Message, tc.want) {
				t.Errorf("message %q, want %q", response.Result.Message, tc.want)
			}
		})
	}
}

func TestValidatorAllows(t *testing.T) {
	const deleting = `,"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["example.com/x"]`
	for name, tc := range map[string]struct {
		request admission.Request
		want    []string // schemas that a module was checked with
	}{
		"a module without parameters": {
			create(policy("", `{"module":"good"}`)), []string{`{"additionalProperties":false,"properties":{"(none)":{}},"type":"object"}`},
		},
		"a module with parameters": {
			create(policy("", `{"module":"good"`+integerN+`}`)),
			[]string{`{"additionalProperties":false,"properties":{"n":{"type":"integer"}},"type":"object"}`},
		},
		"a module that is checked again, because its parameters changed": {
			edit(policy("", `{"module":"good"}`), policy("", `{"module":"good"`+integerN+`}`)),
			[]string{`{"additionalProperties":false,"properties":{"n":{"type":"integer"}},"type":"object"}`},
		},
		"another description, without a check of the stored module": {
			edit(policy("", `{"module":"bad"}`), policy("", `{"module":"bad","description":"x"}`)), nil,
		},
		"other labels on any stored spec": {
			edit(policy("", `{"module":"bad"}`), policy(`,"labels":{"a":"b"}`, `{"module":"bad"}`)), nil,
		},
		"a terminating policy with any spec": {
			edit(policy(deleting, `{"module":"good"}`), policy(deleting, `{"module":"bad","parameters":{"openAPIV3Schema":7}}`)), nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			called := &checker{}
			validator := podtransitionpolicy.NewValidator(admission.NewDecoder(newScheme(t)), reader(t), reader(t), called, everything)
			if response := validator.Handle(t.Context(), tc.request); !response.Allowed {
				t.Fatalf("got %+v", response.Result)
			}
			var got []string
			for _, module := range called.called {
				got = append(got, string(module.ParametersSchema))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("checked (-want +got):\n%s", diff)
			}
		})
	}
}
