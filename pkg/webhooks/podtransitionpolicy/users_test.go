package podtransitionpolicy_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/webhooks/clientauth"
	"github.com/podops-dev/podops/pkg/webhooks/podtransitionpolicy"
)

// user returns a PodTransitionRule in namespace "a" with rules that refer to the policy, each
// with the given parameters.
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

// everything may be read by every user.
func everything(context.Context, authenticationv1.UserInfo, string) (bool, error) { return true, nil }

// in returns the rules of a namespace other than "a".
func in(namespace string, object *appsv1alpha1.PodTransitionRule) *appsv1alpha1.PodTransitionRule {
	object.Namespace = namespace
	return object
}

// TestNamesAreForRequestersThatMayReadThem shows that a message names the users of a policy that a
// verified requester may read, and counts the others.
func TestNamesAreForRequestersThatMayReadThem(t *testing.T) {
	old, edited := schemaOf(`"n":{"type":"integer"}`), schemaOf(`"n":{"type":"integer","maximum":5}`)
	users := []client.Object{user("web", `{"n":6}`), in("b", user("db", `{"n":7}`)), in("c", user("db", `{"n":8}`))}
	for name, tc := range map[string]struct {
		unproven bool
		mayRead  podtransitionpolicy.MayRead
		want     string
		without  []string
	}{
		"all of them": {
			mayRead: everything, want: "a/web/r00, b/db/r00, c/db/r00",
		},
		"the users of one namespace": {
			mayRead: func(_ context.Context, who authenticationv1.UserInfo, namespace string) (bool, error) {
				return who.Username == "alice" && namespace == "b", nil
			},
			want: "b/db/r00 and 2 more", without: []string{"a/web", "c/db"},
		},
		"none": {
			mayRead: func(context.Context, authenticationv1.UserInfo, string) (bool, error) { return false, nil },
			want:    "3 rules in namespaces whose rules are not shown to you", without: []string{"a/web", "b/db", "Invalid value: 6"},
		},
		"none when the review fails": {
			mayRead: func(context.Context, authenticationv1.UserInfo, string) (bool, error) {
				return true, errors.New("connection refused")
			},
			want: "3 rules in namespaces whose rules are not shown to you", without: []string{"a/web"},
		},
		"none when the requester is not verified": {
			unproven: true, mayRead: everything, want: "3 rules in namespaces whose rules are not shown to you", without: []string{"a/web", "Invalid value: 6"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := clientauth.WithVerified(t.Context(), !tc.unproven)
			review, removal := edit(old, edited), deletion(false)
			review.UserInfo.Username, removal.UserInfo.Username = "alice", "alice"
			decoder := admission.NewDecoder(newScheme(t))
			for kind, response := range map[string]admission.Response{
				"edit":   podtransitionpolicy.NewValidator(decoder, reader(t, users...), reader(t, users...), &checker{}, tc.mayRead).Handle(ctx, review),
				"delete": podtransitionpolicy.NewDeleteGuard(decoder, reader(t, users...), reader(t, users...), tc.mayRead).Handle(ctx, removal),
			} {
				if response.Allowed || !strings.Contains(response.Result.Message, tc.want) {
					t.Errorf("%s: got %+v, want %q", kind, response.Result, tc.want)
				}
				for _, text := range tc.without {
					if strings.Contains(response.Result.Message, text) {
						t.Errorf("%s: message %q has %q", kind, response.Result.Message, text)
					}
				}
			}
		})
	}
}

// TestRulesThatAreNotEvaluatedPinNoPolicy shows the same for all rules when the owner of the policy
// ignores its users.
func TestRulesThatAreNotEvaluatedPinNoPolicy(t *testing.T) {
	disabled := user("disabled", `{"n":6}`)
	disabled.Spec.Rules[0].Disabled = true
	idle := user("idle", `{"n":6}`)
	idle.Generation, idle.Status.ObservedGeneration = 1, 1
	ignoring := func(object string) string {
		return strings.Replace(object, `"name":"freeze"`, `"name":"freeze","annotations":{"podtransitionpolicy.kusionstack.io/ignore-users":"true"}`, 1)
	}
	old, edited := schemaOf(`"n":{"type":"integer"}`), schemaOf(`"n":{"type":"integer","maximum":5}`)
	for name, tc := range map[string]struct {
		users    []client.Object
		ignores  bool
		warnings int
	}{
		"a disabled rule":                      {users: []client.Object{disabled}},
		"a rule that selects nothing":          {users: []client.Object{idle}},
		"a rule in use that the owner ignores": {users: []client.Object{user("web", `{"n":6}`)}, ignores: true, warnings: 1},
	} {
		t.Run(name, func(t *testing.T) {
			review, removal := edit(old, edited), deletion(false)
			if tc.ignores {
				review.Object.Raw = []byte(ignoring(edited))
				removal.OldObject.Raw = []byte(ignoring(string(removal.OldObject.Raw)))
			}
			decoder := admission.NewDecoder(newScheme(t))
			for kind, response := range map[string]admission.Response{
				"edit":   podtransitionpolicy.NewValidator(decoder, reader(t, tc.users...), reader(t, tc.users...), &checker{}, everything).Handle(t.Context(), review),
				"delete": podtransitionpolicy.NewDeleteGuard(decoder, reader(t, tc.users...), reader(t, tc.users...), everything).Handle(t.Context(), removal),
			} {
				if !response.Allowed || len(response.Warnings) != tc.warnings {
					t.Errorf("%s: got %+v with warnings %q", kind, response.Result, response.Warnings)
				}
			}
		})
	}
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
		"names the rules that it would break": {
			schemaOf(`"n":{"type":"integer","maximum":5}`),
			[]client.Object{user("db", `{"n":5}`), user("web", `{"n":1}`, `{"n":6}`, `{"s":"x"}`)},
			[]string{
				"spec.parameters: Forbidden: the parameters of rules that use it would no longer fit: a/web/r01, a/web/r02 ",
				"(the first: rego.parameters.n: Invalid value: 6: should be less than or equal to 5)", "edit them first",
			},
		},
		"names ten of them": {
			schemaOf(`"s":{"type":"string"}`),
			[]client.Object{user("web", strings.Split(strings.TrimSuffix(strings.Repeat(`{"n":1} `, 13), " "), " ")...)},
			[]string{"a/web/r00, ", ", a/web/r09 and 3 more"},
		},
		"may keep rules that were broken before": {
			schemaOf(`"n":{"type":"integer","maximum":5}`), []client.Object{user("web", `{"n":"x"}`)}, nil,
		},
		"may widen the schema": {
			schemaOf(`"n":{"type":"integer"},"s":{"type":"string"},"b":{"type":"boolean","default":true}`),
			[]client.Object{user("web", `{"n":6}`)}, nil,
		},
		"also by removing the schema": {
			policy("", `{"module":"good"}`), []client.Object{user("web", `{"n":6}`)},
			[]string{"rego.parameters.n: Forbidden: the policy takes no parameters"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			validator := podtransitionpolicy.NewValidator(admission.NewDecoder(newScheme(t)), reader(t, tc.users...), reader(t, tc.users...), &checker{}, everything)
			response := validator.Handle(clientauth.WithVerified(t.Context(), true), edit(old, tc.edited))
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
		cached, apiReader []client.Object
		want              string // empty: allowed
	}{
		"denied": {
			[]client.Object{user("web", `{}`, `{}`), user("db", `{}`)}, []client.Object{user("web", `{}`, `{}`), user("db", `{}`)},
			`PodTransitionPolicy "freeze" is in use by a/db/r00, a/web/r00, a/web/r01; remove these rules, or their rego.policyRef, first, or set the annotation podtransitionpolicy.kusionstack.io/ignore-users=true`,
		},
		"the first ten users": {
			[]client.Object{many}, []client.Object{many},
			`PodTransitionPolicy "freeze" is in use by a/web/r00, a/web/r01, a/web/r02, a/web/r03, a/web/r04, a/web/r05, a/web/r06, ` +
				`a/web/r07, a/web/r08, a/web/r09 and 2 more; remove these rules, or their rego.policyRef, first, or set the annotation podtransitionpolicy.kusionstack.io/ignore-users=true`,
		},
		"not the users of other policies":  {[]client.Object{other}, []client.Object{other}, ""},
		"not users that were just deleted": {[]client.Object{user("web", `{}`, `{}`), user("db", `{}`)}, nil, ""},
		"not users that were just edited":  {[]client.Object{user("web", `{}`)}, []client.Object{other}, ""},
		"the remaining users when others were just deleted": {
			[]client.Object{user("web", `{}`), user("db", `{}`)}, []client.Object{user("web", `{}`)},
			`PodTransitionPolicy "freeze" is in use by a/web/r00; remove these rules, or their rego.policyRef, first, or set the annotation podtransitionpolicy.kusionstack.io/ignore-users=true`,
		},
	} {
		for _, dryRun := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, dry run %v", name, dryRun), func(t *testing.T) {
				guard := podtransitionpolicy.NewDeleteGuard(admission.NewDecoder(newScheme(t)), reader(t, tc.cached...), reader(t, tc.apiReader...), everything)
				response := guard.Handle(clientauth.WithVerified(t.Context(), true), deletion(dryRun))
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

// TestADeleteMakesABoundedNumberOfCalls shows that the delete is denied when the cache is far behind.
func TestADeleteMakesABoundedNumberOfCalls(t *testing.T) {
	var cached []client.Object
	for i := range 50 {
		cached = append(cached, user(fmt.Sprintf("web-%02d", i), `{}`))
	}
	called := 0
	apiReader := interceptor.NewClient(reader(t), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			called++
			return c.Get(ctx, key, o, opts...)
		},
	})
	guard := podtransitionpolicy.NewDeleteGuard(admission.NewDecoder(newScheme(t)), reader(t, cached...), apiReader, everything)
	if response := guard.Handle(t.Context(), deletion(false)); response.Allowed || called != 10 {
		t.Errorf("got %+v after %d reads", response.Result, called)
	}
}

func TestADeleteThatCannotBeCheckedIsAnError(t *testing.T) {
	apiReader := interceptor.NewClient(reader(t), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("connection refused")
		},
	})
	guard := podtransitionpolicy.NewDeleteGuard(admission.NewDecoder(newScheme(t)), reader(t, user("web", `{}`)), apiReader, everything)
	if response := guard.Handle(t.Context(), deletion(false)); response.Allowed || response.Result.Code != http.StatusInternalServerError {
		t.Errorf("got %+v", response.Result)
	}
	if response := guard.Handle(t.Context(), create(`[]`)); response.Allowed || response.Result.Code != http.StatusBadRequest {
		t.Errorf("got %+v", response.Result)
	}
}
