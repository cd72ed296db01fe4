package surge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/replicasetscale"
	"github.com/podops-dev/podops/pkg/core/surge"
	"github.com/podops-dev/podops/pkg/state/podwriter"
	"github.com/podops-dev/podops/pkg/state/replicasetpods"
)

// retryStale is the delay after which pods are read again that the cache does not show as they were written.
const retryStale = 100 * time.Millisecond

// The reasons of events on pods. They never change.
const (
	// EventSurgeBegan reports that a Deployment starts another pod before this one goes.
	EventSurgeBegan = "SurgeBegan"

	// EventSurgeEnded reports that the pod stays, and that its ReplicaSet has a pod too many.
	EventSurgeEnded = "SurgeEnded"
)

// Reconciler carries out the steps of one Deployment at a time.
type Reconciler struct {
	client   client.Client
	reader   replicasetpods.Reader
	recorder events.EventRecorder
	clock    clock.PassiveClock

	// stored has the pods as the last steps stored them.
	stored *podwriter.Versions
}

// New returns a Reconciler. c writes to the API server, and reads pods, workloads and PodTransitionRules from a cache with the
// index replicasetpods.ControllerUIDField.
func New(c client.Client, recorder events.EventRecorder, clk clock.PassiveClock) *Reconciler {
	return &Reconciler{
		client: c, reader: replicasetpods.Reader{Reader: c}, recorder: recorder, clock: clk, stored: podwriter.NewVersions(podwriter.StaleFor),
	}
}

// SetupWithManager registers the controller on the leader.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, workers int) error {
	concerned := predicate.NewPredicateFuncs(func(object client.Object) bool {
		pod, ok := object.(*corev1.Pod)
		return ok && surge.MayConcern(pod)
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("surge").
		For(&appsv1.Deployment{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.deploymentFor), builder.WithPredicates(concerned)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}

// deploymentFor returns a request for the Deployment of a pod.
func (r *Reconciler) deploymentFor(ctx context.Context, pod client.Object) []reconcile.Request {
	controller := metav1.GetControllerOfNoCopy(pod)
	if controller != nil && controller.Kind == "ReplicaSet" {
		set := &appsv1.ReplicaSet{}
		if err := r.client.Get(ctx, types.NamespacedName{Namespace: pod.GetNamespace(), Name: controller.Name}, set); err != nil {
			return nil // the pod changes again before it has another ReplicaSet
		}
		controller = metav1.GetControllerOfNoCopy(set)
	}
	if controller == nil || controller.Kind != "Deployment" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: pod.GetNamespace(), Name: controller.Name}}}
}

// Reconcile carries out the steps for the pods of a Deployment, unless the cache is behind the last ones.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	snapshot, err := r.snapshot(ctx, req.NamespacedName)
	if err != nil || len(snapshot.Pods) == 0 {
		return reconcile.Result{}, err
	}
	now := r.clock.Now()
	for _, pod := range snapshot.Pods {
		if r.stored.HasLater(pod, now) {
			return reconcile.Result{RequeueAfter: retryStale}, nil
		}
	}
	steps, wake := surge.Decide(snapshot, now)
	var errs []error
	for _, step := range steps {
		errs = append(errs, r.apply(ctx, snapshot.Workload.Deployment, step))
	}
	return reconcile.Result{RequeueAfter: wake}, errors.Join(errs...)
}

// snapshot reads the facts of a Deployment. It is empty if none of its pods may be concerned.
func (r *Reconciler) snapshot(ctx context.Context, key types.NamespacedName) (surge.Snapshot, error) {
	deployment := &appsv1.Deployment{}
	if err := r.client.Get(ctx, key, deployment); err != nil {
		return surge.Snapshot{}, client.IgnoreNotFound(err)
	}
	sets, err := r.reader.Sets(ctx, key.Namespace, deployment.UID)
	if err != nil {
		return surge.Snapshot{}, err
	}
	snapshot := surge.Snapshot{Workload: replicasetscale.Workload{Deployment: deployment, Sets: sets}}
	owners := []types.UID{deployment.UID}
	if newest := snapshot.Workload.Newest(); newest != nil {
		owners = append(owners, newest.UID)
	}
	for _, owner := range owners {
		pods, err := r.reader.Pods(ctx, key.Namespace, owner)
		if err != nil {
			return surge.Snapshot{}, err
		}
		snapshot.Pods = append(snapshot.Pods, pods...)
	}
	if !slices.ContainsFunc(snapshot.Pods, surge.MayConcern) {
		return surge.Snapshot{}, nil
	}
	rules := &appsv1alpha1.PodTransitionRuleList{}
	if err := r.client.List(ctx, rules, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return surge.Snapshot{}, fmt.Errorf("listing the PodTransitionRules of namespace %s: %w", key.Namespace, err)
	}
	snapshot.Rules = rules.Items
	return snapshot, nil
}

// apply writes a step to a pod that has not changed, and reports it. A pod that has changed is decided about with its change.
func (r *Reconciler) apply(ctx context.Context, deployment *appsv1.Deployment, step surge.Step) error {
	stored, err := podwriter.PatchOwners(ctx, r.client, step.Pod, podwriter.Change{
		Owners: step.Owners, Labels: step.Labels, Annotations: step.Annotations,
	})
	if err != nil {
		return fmt.Errorf("changing the controller of pod %s: %w", client.ObjectKeyFromObject(step.Pod), err)
	}
	if stored == nil {
		return nil
	}
	r.stored.Note(stored, r.clock.Now())
	switch step.Change {
	case surge.Begin:
		r.recorder.Eventf(step.Pod, deployment, corev1.EventTypeNormal, EventSurgeBegan, "Surge",
			"Deployment %s starts another pod before this one goes, since %s withholds it", deployment.Name, step.Rule)
	case surge.End:
		kind := corev1.EventTypeNormal
		if step.Cause == surge.CauseTimedOut {
			kind = corev1.EventTypeWarning
		}
		r.recorder.Eventf(step.Pod, deployment, kind, EventSurgeEnded, "Surge", "another pod is not started in place of this one any more: %s", step.Cause)
	case surge.Forget:
	}
	return nil
}
