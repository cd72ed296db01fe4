// Package podtransitionpolicy writes the status of PodTransitionPolicies: whether the
// module compiles, and which rules use it. Nothing is decided from that status; rules
// are evaluated from the spec.
package podtransitionpolicy

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/policy/engine"
	"github.com/podops-dev/podops/pkg/policyusers"
)

// remembered is for how many policies the outcome of the inspection is kept.
const remembered = 1024

// Inspector judges one module. It is an *engine.Engine. A module that is wrong is an
// *engine.CompileError; any other error says nothing about the module.
type Inspector interface {
	Inspect(ctx context.Context, source string, parametersSchema json.RawMessage) (engine.Inspection, error)
}

// Reconciler keeps the status of one policy up to date. It is safe for concurrent use.
type Reconciler struct {
	client    client.Client
	inspector Inspector
	clock     clock.PassiveClock

	// judgements holds judgement by judged: a policy is judged once for each of its
	// generations, however often its users change.
	judgements *lru.Cache
}

// judged is what a judgement is about.
type judged struct {
	uid        types.UID
	generation int64
}

// New returns a Reconciler. c reads from a cache that has the index policyusers.Field.
func New(c client.Client, inspector Inspector, clk clock.PassiveClock) *Reconciler {
	return &Reconciler{client: c, inspector: inspector, clock: clk, judgements: lru.New(remembered)}
}

// Reconcile judges the policy, finds its users, and writes the status when it differs.
// A judgement that could not be made is written too, and made again after a while.
func (r *Reconciler) Reconcile(ctx context.Context, policy *appsv1alpha1.PodTransitionPolicy) (reconcile.Result, error) {
	users, err := policyusers.List(ctx, r.client, policy.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	found := r.judge(ctx, policy)
	updated := policy.DeepCopy()
	updated.Status = statusOf(policy, found, users, r.clock.Now())
	if !equality.Semantic.DeepEqual(policy.Status, updated.Status) {
		// Deleted meanwhile: nobody reads it any more.
		err = client.IgnoreNotFound(r.client.Status().Patch(ctx, updated, client.MergeFrom(policy)))
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("writing the status: %w", err)
	}
	return reconcile.Result{}, found.err
}
