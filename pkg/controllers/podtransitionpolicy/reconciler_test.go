package podtransitionpolicy_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/controllers/podtransitionpolicy"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/state/policyusers"
)

func noon() time.Time { return time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC) }

// fixture is an API server with one policy, and an inspector with a fixed result.
type fixture struct {
	client   client.Client
	clock    *testingclock.FakePassiveClock
	result   error
	modules  []string // modules, with the schema of their parameters
	patches  []string
	writeErr error // to every write
	*podtransitionpolicy.Reconciler
}

func (w *fixture) Inspect(_ context.Context, source opa.Source) (opa.Inspection, error) {
	w.modules = append(w.modules, source.Module+" with "+string(source.ParametersSchema))
	return opa.Inspection{}, w.result
}

func newFixture(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := appsv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w := &fixture{clock: testingclock.NewFakePassiveClock(noon())}
	w.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&appsv1alpha1.PodTransitionPolicy{}).
		WithIndex(&appsv1alpha1.PodTransitionRule{}, policyusers.Field, policyusers.Index).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, subresource string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				data, err := p.Data(o)
				if err != nil {
					return err
				}
				w.patches = append(w.patches, subresource+" "+string(data))
				if w.writeErr != nil {
					return w.writeErr
				}
				return c.SubResource(subresource).Patch(ctx, o, p, opts...)
			},
		}).Build()
	w.Reconciler = podtransitionpolicy.New(w.client, w, w.clock)
	return w
}

// reconcile runs one round and returns the policy as it is stored afterwards.
func (w *fixture) reconcile(t *testing.T) (*appsv1alpha1.PodTransitionPolicy, error) {
	t.Helper()
	_, err := w.Reconcile(t.Context(), w.stored(t))
	return w.stored(t), err
}

func (w *fixture) stored(t *testing.T) *appsv1alpha1.PodTransitionPolicy {
	t.Helper()
	stored := &appsv1alpha1.PodTransitionPolicy{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: "freeze"}, stored); err != nil {
		t.Fatal(err)
	}
	return stored
}

func freeze() *appsv1alpha1.PodTransitionPolicy {
	return &appsv1alpha1.PodTransitionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "freeze", UID: "1", Generation: 3},
		Spec:       appsv1alpha1.PodTransitionPolicySpec{Module: "package rule"},
	}
}

func user(namespace, name string, rules ...string) *appsv1alpha1.PodTransitionRule {
	object := &appsv1alpha1.PodTransitionRule{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for _, rule := range rules {
		object.Spec.Rules = append(object.Spec.Rules, appsv1alpha1.TransitionRule{
			Name: rule, Rego: &appsv1alpha1.RegoRule{PolicyRef: &appsv1alpha1.PolicyReference{Name: "freeze"}},
		})
	}
	return object
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: 3}
}

func TestStatus(t *testing.T) {
	notStalled := condition("Stalled", "False", "NotStalled", "the policy needs no edit")
	many := &opa.CompileError{Problems: make([]opa.Problem, 12)}
	for i := range many.Problems {
		many.Problems[i] = opa.Problem{Row: i + 1, Column: 2, Code: "rego_type_error", Message: "odd"}
	}
	var first []appsv1alpha1.PolicyProblem
	for i := range 10 {
		first = append(first, appsv1alpha1.PolicyProblem{Row: int32(i + 1), Column: 2, Code: "rego_type_error", Message: "odd"})
	}
	const manyText = "1:2: rego_type_error: odd (and 11 more, see status.problems)"

	for name, tc := range map[string]struct {
		schema  string
		imports []string
		result  error
		users   []client.Object
		want    appsv1alpha1.PodTransitionPolicyStatus
		wantErr bool
	}{
		"of a module that compiles": {
			users: []client.Object{user("b", "web", "z", "a"), user("a", "web", "x")},
			want: appsv1alpha1.PodTransitionPolicyStatus{
				Conditions: []metav1.Condition{condition("Ready", "True", "Compiled", "the module compiles"), notStalled},
				UserCount:  3, UserNamespaceCount: 2, // without names, which readers of policies may not be allowed to see
			},
		},
		"of a module that does not compile": {
			result: many,
			want: appsv1alpha1.PodTransitionPolicyStatus{
				Conditions: []metav1.Condition{
					condition("Ready", "False", "CompileFailed", manyText), condition("Stalled", "True", "CompileFailed", manyText),
				},
				Problems: first,
			},
		},
		"of a module that conflicts with the library": {
			result: &opa.CompileError{Problems: []opa.Problem{{File: "podops/lib/x.rego", Row: 1, Column: 2, Code: "rego_type_error", Message: "odd"}}},
			want: appsv1alpha1.PodTransitionPolicyStatus{
				Conditions: []metav1.Condition{
					condition("Ready", "False", "CompileFailed", "rego_type_error: podops/lib/x.rego:1:2: odd"),
					condition("Stalled", "True", "CompileFailed", "rego_type_error: podops/lib/x.rego:1:2: odd"),
				},
				Problems: []appsv1alpha1.PolicyProblem{{Code: "rego_type_error", Message: "podops/lib/x.rego:1:2: odd"}},
			},
		},
		"of a schema that cannot be used": {
			schema: `{"type":"string"}`,
			want: appsv1alpha1.PodTransitionPolicyStatus{
				Conditions: []metav1.Condition{
					condition("Ready", "False", "CompileFailed", `schema: spec.parameters.openAPIV3Schema.type: Invalid value: "string": must be object at the root`),
					condition("Stalled", "True", "CompileFailed", `schema: spec.parameters.openAPIV3Schema.type: Invalid value: "string": must be object at the root`),
				},
				Problems: []appsv1alpha1.PolicyProblem{
					{Code: "schema", Message: `spec.parameters.openAPIV3Schema.type: Invalid value: "string": must be object at the root`},
				},
			},
		},
		"of a module that imports a policy that does not exist": {
			imports: []string{"zones"},
			want: appsv1alpha1.PodTransitionPolicyStatus{
				Conditions: []metav1.Condition{
					condition("Ready", "False", "PolicyNotFound", `import_not_found: PodTransitionPolicy "freeze" imports "zones", which does not exist`),
					condition("Stalled", "True", "PolicyNotFound", `import_not_found: PodTransitionPolicy "freeze" imports "zones", which does not exist`),
				},
				Problems: []appsv1alpha1.PolicyProblem{{Code: "import_not_found", Message: `PodTransitionPolicy "freeze" imports "zones", which does not exist`}},
			},
		},
		"of a module that imports itself": {
			imports: []string{"freeze"},
			want: appsv1alpha1.PodTransitionPolicyStatus{
				Conditions: []metav1.Condition{
					condition("Ready", "False", "CompileFailed", `imports: spec.imports: Invalid value: "freeze": freeze imports itself`),
					condition("Stalled", "True", "CompileFailed", `imports: spec.imports: Invalid value: "freeze": freeze imports itself`),
				},
				Problems: []appsv1alpha1.PolicyProblem{{Code: "imports", Message: `spec.imports: Invalid value: "freeze": freeze imports itself`}},
			},
		},
		"of a module that could not be inspected": {
			result: errors.New("no child process"), wantErr: true,
			want: appsv1alpha1.PodTransitionPolicyStatus{
				Conditions: []metav1.Condition{
					condition("Ready", "Unknown", "InspectionFailed", "inspecting the module: no child process"), notStalled,
				},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			policy := freeze()
			if tc.schema != "" {
				policy.Spec.Parameters = &appsv1alpha1.PolicyParameters{OpenAPIV3Schema: &apiextensionsv1.JSON{Raw: []byte(tc.schema)}}
			}
			policy.Spec.Imports = tc.imports
			w := newFixture(t, append(tc.users, policy)...)
			w.result = tc.result
			got, err := w.reconcile(t)
			if (err != nil) != tc.wantErr {
				t.Errorf("got error %v", err)
			}
			tc.want.ObservedGeneration = 3
			if diff := cmp.Diff(tc.want, got.Status, cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime")); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStatusIsBounded(t *testing.T) {
	w := newFixture(t, freeze())
	w.result = &opa.CompileError{Problems: []opa.Problem{{Row: 1, Column: 1, Code: strings.Repeat("c", 100), Message: strings.Repeat("ä", 1000)}}}
	got, err := w.reconcile(t)
	if err != nil {
		t.Fatal(err)
	}
	if p := got.Status.Problems[0]; len(p.Code) != 63 || len(p.Message) > 512 || !strings.HasSuffix(p.Message, "ä...") {
		t.Errorf("got a code of %d and a message of %d bytes", len(p.Code), len(p.Message))
	}
}

func TestAnUnchangedStatusIsNotWritten(t *testing.T) {
	w := newFixture(t, freeze(), user("a", "web", "x"))
	for range 3 {
		if _, err := w.reconcile(t); err != nil {
			t.Fatal(err)
		}
		w.clock.SetTime(w.clock.Now().Add(time.Hour))
	}
	if len(w.patches) != 1 || !strings.HasPrefix(w.patches[0], "status ") {
		t.Errorf("got %d patches: %v", len(w.patches), w.patches)
	}
	if len(w.modules) != 1 {
		t.Errorf("the module was inspected %d times", len(w.modules))
	}
}

func TestNewUserChangesTheUsersOnly(t *testing.T) {
	w := newFixture(t, freeze())
	if _, err := w.reconcile(t); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Create(t.Context(), user("a", "web", "x")); err != nil {
		t.Fatal(err)
	}
	w.clock.SetTime(noon().Add(time.Hour))
	if _, err := w.reconcile(t); err != nil {
		t.Fatal(err)
	}
	want := `status {"status":{"userCount":1,"userNamespaceCount":1}}`
	if diff := cmp.Diff(want, w.patches[len(w.patches)-1]); diff != "" {
		t.Errorf("patch (-want +got):\n%s", diff)
	}
	if len(w.modules) != 1 {
		t.Errorf("the module was inspected %d times", len(w.modules))
	}
}

func TestAnEditIsInspectedAgain(t *testing.T) {
	w := newFixture(t, freeze())
	if _, err := w.reconcile(t); err != nil {
		t.Fatal(err)
	}
	edited := w.stored(t)
	edited.Generation, edited.Spec.Module = 4, "package rule.two"
	edited.Spec.Parameters = &appsv1alpha1.PolicyParameters{OpenAPIV3Schema: &apiextensionsv1.JSON{Raw: []byte(`{"type":"object","properties":{"n":{"type":"integer"}}}`)}}
	if err := w.client.Update(t.Context(), edited); err != nil {
		t.Fatal(err)
	}
	w.clock.SetTime(noon().Add(time.Hour))
	w.result = &opa.CompileError{Problems: []opa.Problem{{Row: 1, Column: 1, Code: "rego_parse_error", Message: "odd"}}}
	got, err := w.reconcile(t)
	if err != nil {
		t.Fatal(err)
	}
	if got.Status.ObservedGeneration != 4 || got.Status.Conditions[0].Status != metav1.ConditionFalse ||
		!got.Status.Conditions[0].LastTransitionTime.Time.Equal(noon().Add(time.Hour)) {
		t.Errorf("got %+v", got.Status)
	}
	want := []string{
		`package rule with {"additionalProperties":false,"properties":{"(none)":{}},"type":"object"}`,
		`package rule.two with {"additionalProperties":false,"properties":{"n":{"type":"integer"}},"type":"object"}`,
	}
	if diff := cmp.Diff(want, w.modules); diff != "" {
		t.Errorf("inspected (-want +got):\n%s", diff)
	}
}

func TestAFailedInspectionIsRepeated(t *testing.T) {
	w := newFixture(t, freeze())
	w.result = errors.New("no child process")
	if _, err := w.reconcile(t); err == nil {
		t.Fatal("the policy is not requeued")
	}
	w.result = nil
	got, err := w.reconcile(t)
	if err != nil || got.Status.Conditions[0].Status != metav1.ConditionTrue {
		t.Errorf("got %+v, %v", got.Status.Conditions, err)
	}
}

func TestWritesThatFail(t *testing.T) {
	gone := apierrors.NewNotFound(schema.GroupResource{}, "freeze")
	for name, tc := range map[string]struct {
		writeErr error
		retry    bool
	}{
		"are retried": {errors.New("connection refused"), true},
		"are dropped when the policy was deleted": {gone, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, freeze())
			w.writeErr = tc.writeErr
			if _, err := w.reconcile(t); (err != nil) != tc.retry {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestALibrary checks that the status of a library counts the rules of the policies that import it, and that a policy is inspected
// again when an import changes.
func TestALibrary(t *testing.T) {
	library := freeze()
	library.Spec.Module = "package lib.freeze"
	importer := freeze()
	importer.Name, importer.UID, importer.Spec.Imports = "spread", "2", []string{"freeze"}
	of := user("a", "web", "x")
	of.Spec.Rules[0].Rego.PolicyRef.Name = "spread"
	w := newFixture(t, library, importer, of)
	got, err := w.reconcile(t)
	if err != nil {
		t.Fatal(err)
	}
	if got.Status.UserCount != 1 || got.Status.UserNamespaceCount != 1 {
		t.Errorf("got %+v", got.Status)
	}
	inspect := func() {
		t.Helper()
		stored := &appsv1alpha1.PodTransitionPolicy{}
		if err := w.client.Get(t.Context(), client.ObjectKey{Name: "spread"}, stored); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Reconcile(t.Context(), stored); err != nil {
			t.Fatal(err)
		}
	}
	inspect()
	inspect()
	if len(w.modules) != 2 || !strings.Contains(w.modules[1], "# podops: import lib/freeze.rego\npackage lib.freeze") {
		t.Fatalf("inspected %q", w.modules)
	}
	got.Generation, got.Spec.Module = 4, "package lib.freeze # edited"
	if err := w.client.Update(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	inspect()
	if len(w.modules) != 3 || !strings.Contains(w.modules[2], "# edited") {
		t.Errorf("inspected %q", w.modules)
	}
}
