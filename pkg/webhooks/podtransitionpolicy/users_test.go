package podtransitionpolicy_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/webhooks/podtransitionpolicy"
)

// user is a PodTransitionRule in namespace "a" with rules that refer to the policy, each
// with the parameters given.
func user(name string, parameters ...string) *appsv1alpha1.PodTransitionRule {
	object := &appsv1alpha1.PodTransitionRule{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}}
	for i, raw := range parameters {
		object.Spec.Rules = append(object.Spec.Rules, appsv1alpha1.TransitionRule{
			Name: fmt.Sprintf("r%02d", i), Rego: &appsv1alpha1.RegoRule{
				PolicyRef: &appsv1alpha1.PolicyReference{Name: "freeze"}, Parameters: &apiextensionsv1.JSON{Raw: []byte(raw)},
			},
		})
	}
	return object
}

func schemaOf(properties string) string {
	return policy("", `{"module":"good","parameters":{"openAPIV3Schema":{"type":"object","properties":{`+properties+`}}}}`)
}

func TestAnEditMustNotBreakUsers(t *testing.T) {
	old := schemaOf(`"n":{"type":"integer"},"s":{"type":"string"}`)
	for name, tc := range map[string]struct {
		edited string
		users  []client.Object
		want   []string // texts of the message; empty: allowed
	}{
		"and names those that it would": {
			schemaOf(`"n":{"type":"integer","maximum":5}`),
			[]client.Object{user("db", `{"n":5}`), user("web", `{"n":1}`, `{"n":6}`, `{"s":"x"}`)},
			[]string{
				"spec.parameters: Forbidden: the parameters of rules that use it would no longer fit: a/web/r01, a/web/r02 ",
				"(the first: rego.parameters.n: Invalid value: 6: should be less than or equal to 5)", "edit them first",
			},
		},
		"of which it names ten": {
			schemaOf(`"s":{"type":"string"}`),
			[]client.Object{user("web", strings.Split(strings.TrimSuffix(strings.Repeat(`{"n":1} `, 13), " "), " ")...)},
			[]string{"a/web/r00, ", ", a/web/r09 and 3 more"},
		},
		"but may leave those broken that were": {
			schemaOf(`"n":{"type":"integer","maximum":5}`), []client.Object{user("web", `{"n":"x"}`)}, nil,
		},
		"and may widen what fits": {
			schemaOf(`"n":{"type":"integer"},"s":{"type":"string"},"b":{"type":"boolean","default":true}`),
			[]client.Object{user("web", `{"n":6}`)}, nil,
		},
		"when it takes the schema away": {
			policy("", `{"module":"good"}`), []client.Object{user("web", `{"n":6}`)},
			[]string{"rego.parameters.n: Forbidden: the policy takes no parameters"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			validator := podtransitionpolicy.NewValidator(admission.NewDecoder(newScheme(t)), reader(t, tc.users...), &checker{})
			response := validator.Handle(t.Context(), edit(old, tc.edited))
			if response.Allowed != (len(tc.want) == 0) {
				t.Fatalf("got %+v", response.Result)
			}
			for _, text := range tc.want {
				if !strings.Contains(response.Result.Message, text) {
					t.Errorf("message %q lacks %q", response.Result.Message, text)
				}
			}
		})
	}
}

func deletion(dryRun bool) admission.Request {
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		// A deletecollection leaves the name out.
		Operation: admissionv1.Delete, OldObject: runtime.RawExtension{Raw: []byte(policy("", `{"module":"good"}`))}, DryRun: &dryRun,
	}}
}

func TestADeleteNamesTheUsers(t *testing.T) {
	many := user("web", strings.Split(strings.TrimSuffix(strings.Repeat(`{} `, 12), " "), " ")...)
	other := user("web", `{}`)
	other.Spec.Rules[0].Rego.PolicyRef.Name = "another"

	for name, tc := range map[string]struct {
		cached, live []client.Object
		want         string // empty: allowed
	}{
		"and is denied": {
			[]client.Object{user("web", `{}`, `{}`), user("db", `{}`)}, []client.Object{user("web", `{}`, `{}`), user("db", `{}`)},
			`PodTransitionPolicy "freeze" is in use by a/db/r00, a/web/r00, a/web/r01; remove these rules, or their rego.policyRef, first`,
		},
		"the first ten of them": {
			[]client.Object{many}, []client.Object{many},
			`PodTransitionPolicy "freeze" is in use by a/web/r00, a/web/r01, a/web/r02, a/web/r03, a/web/r04, a/web/r05, a/web/r06, ` +
				`a/web/r07, a/web/r08, a/web/r09 and 2 more; remove these rules, or their rego.policyRef, first`,
		},
		"not those of other policies":              {[]client.Object{other}, []client.Object{other}, ""},
		"not those that were deleted a moment ago": {[]client.Object{user("web", `{}`, `{}`), user("db", `{}`)}, nil, ""},
		"not those that were edited a moment ago":  {[]client.Object{user("web", `{}`)}, []client.Object{other}, ""},
		"but those that are left when others were deleted just before": {
			[]client.Object{user("web", `{}`), user("db", `{}`)}, []client.Object{user("web", `{}`)},
			`PodTransitionPolicy "freeze" is in use by a/web/r00; remove these rules, or their rego.policyRef, first`,
		},
	} {
		for _, dryRun := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, dry run %v", name, dryRun), func(t *testing.T) {
				guard := podtransitionpolicy.NewDeleteGuard(admission.NewDecoder(newScheme(t)), reader(t, tc.cached...), reader(t, tc.live...))
				response := guard.Handle(t.Context(), deletion(dryRun))
				if tc.want == "" {
					if !response.Allowed {
						t.Errorf("got %+v", response.Result)
					}
					return
				}
				if response.Allowed || response.Result.Code != http.StatusForbidden || response.Result.Message != tc.want {
					t.Errorf("got %+v, want %q", response.Result, tc.want)
				}
			})
		}
	}
}

// TestADeleteAsksABoundedNumberOfTimes: when the cache is far behind, the answer is no.
func TestADeleteAsksABoundedNumberOfTimes(t *testing.T) {
	var cached []client.Object
	for i := range 50 {
		cached = append(cached, user(fmt.Sprintf("web-%02d", i), `{}`))
	}
	asked := 0
	live := interceptor.NewClient(reader(t), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			asked++
			return c.Get(ctx, key, o, opts...)
		},
	})
	guard := podtransitionpolicy.NewDeleteGuard(admission.NewDecoder(newScheme(t)), reader(t, cached...), live)
	if response := guard.Handle(t.Context(), deletion(false)); response.Allowed || asked != 10 {
		t.Errorf("got %+v after %d reads", response.Result, asked)
	}
}

func TestADeleteThatCannotBeJudgedIsAnError(t *testing.T) {
	live := interceptor.NewClient(reader(t), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("no answer")
		},
	})
	guard := podtransitionpolicy.NewDeleteGuard(admission.NewDecoder(newScheme(t)), reader(t, user("web", `{}`)), live)
	if response := guard.Handle(t.Context(), deletion(false)); response.Allowed || response.Result.Code != http.StatusInternalServerError {
		t.Errorf("got %+v", response.Result)
	}
	if response := guard.Handle(t.Context(), create(`[]`)); response.Allowed || response.Result.Code != http.StatusBadRequest {
		t.Errorf("got %+v", response.Result)
	}
}
