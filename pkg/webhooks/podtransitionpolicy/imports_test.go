package podtransitionpolicy_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/webhooks/clientauth"
	"github.com/podops-dev/podops/pkg/webhooks/podtransitionpolicy"
)

// importing returns a stored policy that imports others.
func importing(name, module string, imported ...string) *appsv1alpha1.PodTransitionPolicy {
	return &appsv1alpha1.PodTransitionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1alpha1.PodTransitionPolicySpec{Module: module, Imports: imported},
	}
}

const library = `{"module":"package lib.freeze"}`

func TestImports(t *testing.T) {
	const ignore = `,"annotations":{"podtransitionpolicy.kusionstack.io/ignore-users":"true"}`
	for name, tc := range map[string]struct {
		request           admission.Request
		cached, apiReader []client.Object
		live              []client.Object // in place of those of the cache
		denied            string          // empty: allowed
		warnings          []string        // of an allowed request
	}{
		"of a policy that exists": {request: create(policy("", `{"module":"good","imports":["zones"]}`)), cached: []client.Object{importing("zones", "package lib.zones")}},
		"of a policy that the cache does not have yet": {
			request: create(policy("", `{"module":"good","imports":["zones"]}`)), apiReader: []client.Object{importing("zones", "package lib.zones")},
		},
		"of a policy that does not exist": {
			request: create(policy("", `{"module":"good","imports":["zones"]}`)),
			warnings: []string{`spec.imports: PodTransitionPolicy "freeze" imports "zones", which does not exist: until it is created, ` +
				`rules that use it withhold every pod, reason PolicyNotFound`},
		},
		"of a module with a probable mistake": {
			request:  create(policy("", `{"module":"odd module"}`)),
			warnings: []string{"spec.module: allow is true by default (row 3, column 1 of the module)"},
		},
		"of a policy that was mended, which the cache does not have yet": {
			request: create(policy("", `{"module":"good","imports":["zones"]}`)), cached: []client.Object{importing("zones", "package lib.zones\nbad")},
			live: []client.Object{importing("zones", "package lib.zones")},
		},
		"an edit after one of a policy that imported it, which the cache does not have yet": {
			request: edit(policy("", library), policy("", `{"module":"good"}`)), cached: []client.Object{importing("a", "good", "freeze")},
			live: []client.Object{importing("a", "good")},
		},
		"of a policy that is broken": {
			request: create(policy("", `{"module":"good","imports":["zones"]}`)), cached: []client.Object{importing("zones", "package lib.zones\nbad")},
			denied: `spec.module: Invalid value: "freeze.rego:1:1"`,
		},
		"of a policy that imports it": {
			request: create(policy("", `{"module":"package lib.freeze","imports":["zones"]}`)), cached: []client.Object{importing("zones", "package lib.zones", "freeze")},
			denied: `spec.imports: Invalid value: "zones": freeze and zones import each other`,
		},
		"a library with parameters": {
			request: create(policy("", `{"module":"package lib.freeze"`+integerN+`}`)), denied: "spec.parameters: Forbidden: a library has no parameters",
		},
		"data with a name that Rego does not have": {
			request: create(policy("", `{"data":{"a-b":1}}`)), denied: `spec.data: Invalid value: "a-b"`,
		},
		"an edit with which policies that import it do not compile": {
			request: edit(policy("", library), policy("", `{"module":"good"}`)),
			cached:  []client.Object{importing("a", "good", "freeze"), importing("b", "package lib.b", "a"), importing("c", "good", "b")},
			denied: `spec: Forbidden: 1 PodTransitionPolicies that import it would no longer compile: a (the first: spec.imports: ` +
				`Invalid value: "freeze": its package is not lib, and it has a module: policies import libraries and data); ` +
				"edit them first, or set the annotation podtransitionpolicy.kusionstack.io/ignore-users=true",
		},
		"the same edit, with the annotation": {
			request: edit(policy(ignore, library), policy(ignore, `{"module":"good"}`)), cached: []client.Object{importing("a", "good", "freeze")},
			warnings: []string{"rules of 1 policies that import this PodTransitionPolicy hold back their pods until these policies are edited " +
				"(annotation podtransitionpolicy.kusionstack.io/ignore-users)"},
		},
		"an edit with which policies that import it compile": {
			request: edit(policy("", library), policy("", `{"module":"package lib.freeze","data":{"a":1}}`)), cached: []client.Object{importing("a", "good", "freeze")},
		},
		"an edit of an import of policies that did not compile before": {
			request: edit(policy("", library), policy("", `{"module":"good"}`)), cached: []client.Object{importing("a", "bad", "freeze")},
		},
		"a policy for rules that becomes a library": {
			request: edit(policy("", `{"module":"good"}`), policy("", library)), cached: []client.Object{user("web", `{}`)},
			denied: `a/web/r00 (the first: rego.policyRef.name: Invalid value: "freeze": is a library)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			apiReader := append(slices.Clone(tc.cached), tc.apiReader...)
			if tc.live != nil {
				apiReader = tc.live
			}
			validator := podtransitionpolicy.NewValidator(admission.NewDecoder(newScheme(t)), reader(t, tc.cached...), reader(t, apiReader...), &checker{}, everything)
			response := validator.Handle(clientauth.WithVerified(t.Context(), true), tc.request)
			if tc.denied != "" {
				if response.Allowed || response.Result.Code != http.StatusUnprocessableEntity || !strings.Contains(response.Result.Message, tc.denied) {
					t.Errorf("got %+v, want %q", response.Result, tc.denied)
				}
				return
			}
			if diff := cmp.Diff(tc.warnings, response.Warnings); !response.Allowed || diff != "" {
				t.Errorf("got %+v, warnings (-want +got):\n%s", response.Result, diff)
			}
		})
	}
}

func TestADeleteOfAnImport(t *testing.T) {
	const named = `PodTransitionPolicy "freeze" is imported by a, c; remove it from their spec.imports first, or set the annotation ` +
		"podtransitionpolicy.kusionstack.io/ignore-users=true"
	a, c := importing("a", "good", "freeze"), importing("c", "good", "freeze")
	for name, tc := range map[string]struct {
		cached, apiReader []client.Object
		ignore            bool
		want              string // empty: allowed
	}{
		"is denied":                         {cached: []client.Object{a, c, importing("b", "good", "a")}, apiReader: []client.Object{a, c}, want: named},
		"is allowed with the annotation":    {cached: []client.Object{a}, apiReader: []client.Object{a}, ignore: true},
		"is allowed once they were deleted": {cached: []client.Object{a, c}},
		"is allowed once they were edited":  {cached: []client.Object{a}, apiReader: []client.Object{importing("a", "good")}},
	} {
		t.Run(name, func(t *testing.T) {
			stored := policy("", library)
			if tc.ignore {
				stored = policy(`,"annotations":{"podtransitionpolicy.kusionstack.io/ignore-users":"true"}`, library)
			}
			guard := podtransitionpolicy.NewDeleteGuard(admission.NewDecoder(newScheme(t)), reader(t, tc.cached...), reader(t, tc.apiReader...), everything)
			response := guard.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Delete, OldObject: runtime.RawExtension{Raw: []byte(stored)},
			}})
			if response.Allowed != (tc.want == "") || response.Result.Message != tc.want && !response.Allowed {
				t.Errorf("got %+v, want %q", response.Result, tc.want)
			}
		})
	}
}
