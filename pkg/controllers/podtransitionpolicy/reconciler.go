// Package podtransitionpolicy writes the status of PodTransitionPolicies: whether the
// module compiles, and which rules use it. Nothing is decided from that status; rules
// are evaluated from the spec.
package podtransitionpolicy

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/fairshare"
	"github.com/podops-dev/podops/pkg/opa"
	"github.com/podops-dev/podops/pkg/policyusers"
)

// remembered bounds the bytes of the outcomes of inspections: some 1,000 policies with ten problems
// each, and many more without.
const remembered = 4 << 20

// Inspector judges one module, and keeps nothing of it in this process but the result. It is a
// *sandbox.Sandbox. A module that is wrong is an *opa.CompileError; any other error says nothing
// about the module.
type Inspector interface {
	Precompile(ctx context.Context, source opa.Source) error
}

// Reconciler keeps the status of one policy up to date. It is safe for concurrent use.
type Reconciler struct {
	client    client.Client
	inspector Inspector
	clock     clock.PassiveClock

	// judgements are those of the last generation of a policy: it is judged once for each, however
	// often its users change.
	judgements *fairshare.Cache[types.UID, judged]
}

// judged is the judgement of one generation.
type judged struct {
	generation int64
	judgement
}

// New returns a Reconciler. c reads from a cache that has the index policyusers.Field.
func New(c client.Client, inspector Inspector, clk clock.PassiveClock) *Reconciler {
	return &Reconciler{client: c, inspector: inspector, clock: clk, judgements: fairshare.NewCache[types.UID, judged](remembered)}
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
		// Deleted meanwhile: its status has no reader any more.
		err = client.IgnoreNotFound(r.client.Status().Patch(ctx, updated, client.MergeFrom(policy)))
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("writing the status: %w", err)
	}
	return reconcile.Result{}, found.err
}
