// Package podtransitionpolicy writes the status of PodTransitionPolicies: whether the
// module compiles, and which rules use it. The status is only a report; rules are
// evaluated from the spec.
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
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/runtime/fairshare"
	"github.com/podops-dev/podops/pkg/state/policyusers"
)

// inspectionBytes bounds the memory of inspections: some 1,000 policies with ten problems each, and
// many more without.
const inspectionBytes = 4 << 20

// Inspector checks one module, and keeps only its result in this process. It is a *sandbox.Sandbox.
// An invalid module is an *opa.CompileError; any other error is independent of the module.
type Inspector interface {
	Inspect(ctx context.Context, source opa.Source) (opa.Inspection, error)
}

// Reconciler keeps the status of one policy up to date. It is safe for concurrent use.
type Reconciler struct {
	client    client.Client
	inspector Inspector
	clock     clock.PassiveClock

	// inspections contains the result of each policy's last version: each version is
	// inspected once, however often its users change.
	inspections *fairshare.Cache[types.UID, inspected]
}

// inspected is the inspection of one version.
type inspected struct {
	// version is that of the policy and its imports (imports.Policies).
	version string
	inspection
}

// New returns a Reconciler. c reads from a cache that has the index policyusers.Field.
func New(c client.Client, inspector Inspector, clk clock.PassiveClock) *Reconciler {
	return &Reconciler{client: c, inspector: inspector, clock: clk, inspections: fairshare.NewCache[types.UID, inspected](inspectionBytes)}
}

// Reconcile inspects the policy, finds the rules that use it or a policy that imports it, and writes the status when it differs. If the
// inspection fails, the status reports that, and the inspection is repeated after a while.
func (r *Reconciler) Reconcile(ctx context.Context, policy *appsv1alpha1.PodTransitionPolicy) (reconcile.Result, error) {
	known, err := policyusers.Policies(ctx, r.client)
	if err != nil {
		return reconcile.Result{}, err
	}
	known[policy.Name] = policy
	var users []policyusers.User
	for _, name := range append(known.Importers(policy.Name), policy.Name) {
		of, err := policyusers.List(ctx, r.client, name)
		if err != nil {
			return reconcile.Result{}, err
		}
		users = append(users, of...)
	}
	found := r.inspected(ctx, policy, known)
	updated := policy.DeepCopy()
	updated.Status = buildStatus(policy, found, users, r.clock.Now())
	if !equality.Semantic.DeepEqual(policy.Status, updated.Status) {
		// Deleted meanwhile: nothing to write.
		err = client.IgnoreNotFound(r.client.Status().Patch(ctx, updated, client.MergeFrom(policy)))
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("writing the status: %w", err)
	}
	return reconcile.Result{}, found.err
}
