package podtransitionpolicy

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule/imports"
	"github.com/podops-dev/podops/pkg/state/policyusers"
)

// SetupWithManager registers the controller and the index policyusers.Field, which the
// webhooks of policies read too. workers is the number of policies that are inspected
// at once.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, workers int) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &appsv1alpha1.PodTransitionRule{}, policyusers.Field, policyusers.Index); err != nil {
		return fmt.Errorf("indexing rules by policy: %w", err)
	}
	// A policy or rule status changes neither a module nor its users.
	edited := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	warm := true
	return ctrl.NewControllerManagedBy(mgr).
		Named("podtransitionpolicy").
		For(&appsv1alpha1.PodTransitionPolicy{}, edited).
		Watches(&appsv1alpha1.PodTransitionRule{}, handler.EnqueueRequestsFromMapFunc(r.usedBy), edited).
		Watches(&appsv1alpha1.PodTransitionPolicy{}, handler.EnqueueRequestsFromMapFunc(r.related), edited).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, EnableWarmup: &warm}).
		Complete(reconcile.AsReconciler(mgr.GetClient(), r))
}

// usedBy returns requests for the policies that a rule uses, directly and by imports. For an edit it is called
// with both versions, so that a policy that is no longer referred to is included.
func (r *Reconciler) usedBy(ctx context.Context, rule client.Object) []reconcile.Request {
	return r.requests(ctx, func(known imports.Policies) (names []string) {
		for _, name := range policyusers.Index(rule) {
			names = append(names, known.Closure(name)...)
		}
		return names
	})
}

// related returns requests for the policies that a policy imports, whose users its own rules are, and for the policies that import it.
func (r *Reconciler) related(ctx context.Context, object client.Object) []reconcile.Request {
	return r.requests(ctx, func(known imports.Policies) []string {
		if policy, ok := object.(*appsv1alpha1.PodTransitionPolicy); ok {
			known[policy.Name] = policy
		}
		return append(known.Importers(object.GetName()), known.Closure(object.GetName())...)
	})
}

func (r *Reconciler) requests(ctx context.Context, names func(imports.Policies) []string) []reconcile.Request {
	known, err := policyusers.Policies(ctx, r.client)
	if err != nil {
		ctrllog.FromContext(ctx).Error(err, "Finding the policies that a change concerns")
		known = imports.Policies{}
	}
	var requests []reconcile.Request
	for _, name := range names(known) {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
	}
	return requests
}
