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
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/policyusers"
)

// SetupWithManager registers the controller and the index policyusers.Field, which the
// webhooks of policies read too. workers is the number of policies that are inspected
// at once.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, workers int) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &appsv1alpha1.PodTransitionRule{}, policyusers.Field, policyusers.Index); err != nil {
		return fmt.Errorf("indexing rules by policy: %w", err)
	}
	// A status of a policy or of a rule changes neither a module nor its users.
	edited := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	warm := true
	return ctrl.NewControllerManagedBy(mgr).
		Named("podtransitionpolicy").
		For(&appsv1alpha1.PodTransitionPolicy{}, edited).
		Watches(&appsv1alpha1.PodTransitionRule{}, handler.EnqueueRequestsFromMapFunc(policiesOf), edited).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, EnableWarmup: &warm}).
		Complete(reconcile.AsReconciler(mgr.GetClient(), r))
}

// policiesOf returns requests for the policies that a rule refers to. For an edit it is called
// with both versions, so that a policy that is no longer referred to is included.
func policiesOf(_ context.Context, rule client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, name := range policyusers.Index(rule) {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
	}
	return requests
}
