package admission

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/webhookrule/webhookclient"
	"github.com/podops-dev/podops/pkg/webhooks/inspection"
)

// slow are modules on a busy machine: each check takes longer than a webhook may, and the first ones get too little of
// the processors.
type slow struct{ busy int }

// Check implements modules.
func (s *slow) Check(ctx context.Context, _ opa.Source) (time.Duration, error) {
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(2 * inspection.Timeout):
	}
	if s.busy--; s.busy >= 0 {
		return 0, fmt.Errorf("%w, try again", opa.ErrNotReached)
	}
	return 0, nil
}

// Known implements modules.
func (s *slow) Known(opa.Source) (opa.Inspection, bool) { return opa.Inspection{}, false }

func TestABusyMachineIsNoProblemOfAModule(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := appsv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	reviewer, err := New(fake.NewClientBuilder().WithScheme(scheme).Build(), nil, webhookclient.Guard{})
	if err != nil {
		t.Fatal(err)
	}
	rule := []byte(`{"apiVersion":"apps.kusionstack.io/v1alpha1","kind":"PodTransitionRule","metadata":{"name":"web"},"spec":{
		"selector":{"matchLabels":{"app":"web"}},"rules":[{"name":"mine","stage":"PreCheck","enforcement":"Enforce","rego":{"module":"package rule\n\nallow := true"}}]}}`)
	policy := []byte(`{"apiVersion":"apps.kusionstack.io/v1alpha1","kind":"PodTransitionPolicy","metadata":{"name":"web"},"spec":{
		"module":"package rule\n\nallow := true"}}`)
	for name, tc := range map[string]struct {
		busy   int
		denied bool
	}{
		"for longer than a webhook may take": {busy: 0},
		"for some tries":                     {busy: busyTries - 1},
		"for all tries":                      {busy: busyTries, denied: true},
	} {
		for kind, review := range map[string]func(context.Context) Answer{
			"rule":   func(ctx context.Context) Answer { return reviewer.Rule(ctx, rule) },
			"policy": func(ctx context.Context) Answer { return reviewer.Policy(ctx, policy) },
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					reviewer.modules = &slow{busy: tc.busy}
					answer := review(t.Context())
					if denied := answer.Denied != ""; denied != tc.denied || len(answer.Causes)+len(answer.Problems) > 0 {
						t.Errorf("answer %+v, want denied %t", answer, tc.denied)
					}
				})
			})
		}
	}
}
