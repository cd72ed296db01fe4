package freeze

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestDescribe(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		during  time.Duration
		message string
		until   time.Time
	}{
		"until thaw":      {"INC-4711", 0, "frozen by jane: INC-4711", time.Time{}},
		"for two hours":   {"INC-4711", 2 * time.Hour, "frozen by jane until 2026-01-01 14:00 UTC: INC-4711", noon.Add(2 * time.Hour)},
		"lines in a text": {"  a\nb ", 0, "frozen by jane: a b", time.Time{}},
		"a long text":     {strings.Repeat("x", 1000), 0, "frozen by jane: " + strings.Repeat("x", maxReason-3) + "...", time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			message, until := describe("jane", tc.reason, tc.during, noon)
			if message != tc.message || !until.Equal(tc.until) {
				t.Errorf("got %q until %s, want %q until %s", message, until, tc.message, tc.until)
			}
		})
	}
}

// TestFreezeAndThaw shows that a freeze replaces an earlier one, that thaw removes it, and that neither changes a PodTransitionRule of
// the same name that is no freeze.
func TestFreezeAndThaw(t *testing.T) {
	foreign := &appsv1alpha1.PodTransitionRule{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: ruleName}}
	c := fake.NewClientBuilder().WithScheme(command.Scheme()).WithObjects(foreign).Build()
	message := func(namespace string) string {
		rule := &appsv1alpha1.PodTransitionRule{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: ruleName}, rule); apierrors.IsNotFound(err) {
			return ""
		} else if err != nil {
			t.Fatal(err)
		}
		return string(rule.Spec.Rules[0].Rego.Parameters.Raw)
	}
	for _, text := range []string{"first", "second"} {
		done, err := each(t.Context(), []string{"shop", "other", "payments"}, func(ctx context.Context, namespace string) (bool, error) {
			return put(ctx, c, newRule(namespace, parameters{Message: text}))
		})
		if done != 2 || err == nil || !strings.HasPrefix(err.Error(), "namespace other: the PodTransitionRule freeze is not that of") {
			t.Errorf("%d namespaces are frozen, error %v, want 2 and one of namespace other", done, err)
		}
		if diff := cmp.Diff(`{"message":"`+text+`","until":0}`, message("shop")); diff != "" {
			t.Errorf("parameters (-want +got):\n%s", diff)
		}
	}
	for _, want := range []bool{true, false} {
		if removed, err := remove(t.Context(), c, "shop"); removed != want || err != nil || message("shop") != "" {
			t.Errorf("removed: %t, %v, want %t", removed, err, want)
		}
	}
	if _, err := remove(t.Context(), c, "other"); err == nil {
		t.Error("a PodTransitionRule that is no freeze is removed")
	}
}

// TestAwait shows that a freeze is taken over once the manager evaluates its current generation or, for the cluster, shows its message,
// and that a user without the right to read that gets a note.
func TestAwait(t *testing.T) {
	rule := newRule("shop", parameters{Message: "frozen by jane: INC-4711"})
	rule.Generation = 2
	set := func(condition metav1.Condition) *appsv1alpha1.PodTransitionRule {
		changed := rule.DeepCopy()
		changed.Status.Conditions = []metav1.Condition{condition}
		return changed
	}
	namespace := func(c client.Client) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) { return holds(ctx, c, "shop") }
	}
	whole := func(c client.Client) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) { return holdsCluster(ctx, c, "frozen by jane: INC-4711") }
	}
	frozen := func(message string) *appsv1alpha1.PodTransitionRule {
		return set(metav1.Condition{Type: appsv1alpha1.ConditionFrozen, Status: metav1.ConditionTrue, Message: message})
	}
	ready := func(status metav1.ConditionStatus, generation int64) *appsv1alpha1.PodTransitionRule {
		return set(metav1.Condition{Type: appsv1alpha1.ConditionReady, Status: status, ObservedGeneration: generation})
	}
	const unknown = "note: whether the manager has taken the freeze over is not known: "
	for name, tc := range map[string]struct {
		stored *appsv1alpha1.PodTransitionRule
		taken  func(client.Client) func(context.Context) (bool, error)
		want   bool
		note   string
	}{
		"no status":                  {stored: rule, taken: namespace},
		"an earlier generation":      {stored: ready(metav1.ConditionTrue, 1), taken: namespace},
		"a rule that is not ready":   {stored: ready(metav1.ConditionFalse, 2), taken: namespace},
		"the current generation":     {stored: ready(metav1.ConditionTrue, 2), taken: namespace, want: true},
		"the cluster, no condition":  {stored: rule, taken: whole},
		"the cluster, earlier":       {stored: frozen("no pod gets a permit: frozen by joe: INC-1"), taken: whole},
		"the cluster":                {stored: frozen("no pod gets a permit: frozen by jane: INC-4711"), taken: whole, want: true},
		"the cluster without a rule": {taken: whole, want: true, note: unknown + "there is no PodTransitionRule, whose condition Frozen would show it\n"},
	} {
		t.Run(name, func(t *testing.T) {
			builder := fake.NewClientBuilder().WithScheme(command.Scheme())
			if tc.stored != nil {
				builder.WithObjects(tc.stored)
			}
			streams, _, _, notes := genericiooptions.NewTestIOStreams()
			err := await(t.Context(), command.NewEnvironment(streams), 40*time.Millisecond, tc.taken(builder.Build()))
			if notes.String() != tc.note {
				t.Errorf("got the note %q, want %q", notes, tc.note)
			}
			if (err == nil) != tc.want || err != nil && !strings.Contains(err.Error(), "no manager has taken it over") {
				t.Errorf("got %v, want taken over: %t", err, tc.want)
			}
		})
	}
	streams, _, _, notes := genericiooptions.NewTestIOStreams()
	forbidden := apierrors.NewForbidden(appsv1alpha1.GroupVersion().WithResource("podtransitionrules").GroupResource(), "", nil)
	err := await(t.Context(), command.NewEnvironment(streams), time.Second, func(context.Context) (bool, error) { return false, forbidden })
	if err != nil || !strings.HasPrefix(notes.String(), unknown) {
		t.Errorf("got %v and %q", err, notes)
	}
}
