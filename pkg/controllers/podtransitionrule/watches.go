package podtransitionrule

import (
	"context"
	"maps"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/state/podindex"
)

// Notifier adds the namespaces that the index notifies of to the controller's queue. It keeps
// the notifications from before the controller starts.
type Notifier struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	queue   workqueue.TypedRateLimitingInterface[string]
	pending map[string]bool

	// notified is when each namespace was last notified of; entries older than rest are dropped at pruned.
	notified map[string]time.Time
	pruned   time.Time
}

// NewNotifier returns a Notifier for podindex.NewIndex.
func NewNotifier(clk clock.PassiveClock) *Notifier {
	return &Notifier{clock: clk, pending: map[string]bool{}, notified: map[string]time.Time{}}
}

// sharing is the time for which a namespace that changes again waits for further changes, which share its
// round: the permits of a batch are written together, and each pod has several versions soon after it.
const sharing = 50 * time.Millisecond

// rest is the time without a change after which a namespace waits for no others. A rollout changes several pods more often.
const rest = 500 * time.Millisecond

// Notify puts a namespace in the queue: at once after a rest, so that a pod that is alone waits for nothing, or
// else sharing later.
func (n *Notifier) Notify(namespace string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.queue == nil {
		n.pending[namespace] = true
		return
	}
	now := n.clock.Now()
	rested := now.Sub(n.notified[namespace]) >= rest
	if now.Sub(n.pruned) >= time.Minute {
		maps.DeleteFunc(n.notified, func(_ string, at time.Time) bool { return now.Sub(at) >= rest })
		n.pruned = now
	}
	n.notified[namespace] = now
	if rested {
		n.queue.Add(namespace)
		return
	}
	n.queue.AddAfter(namespace, sharing)
}

func (n *Notifier) start(_ context.Context, queue workqueue.TypedRateLimitingInterface[string]) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.queue = queue
	for namespace := range n.pending {
		queue.Add(namespace)
	}
	n.pending = nil
	return nil
}

// SetupWithManager registers the controller and its watches. The cache of the manager writes
// the pods to the index: see podindex.Index.NewInformer. It is warm before the lease is held.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, notifier *Notifier) error {
	warm := true
	r.nodes.informers, r.nodes.index = mgr.GetCache(), r.index
	return builder.TypedControllerManagedBy[string](mgr).
		Named("podtransitionrule").
		WatchesRawSource(source.TypedFunc[string](notifier.start)).
		Watches(&appsv1alpha1.PodTransitionRule{}, feed(r.setRule, r.deleteRule)).
		Watches(&appsv1alpha1.PodTransitionPolicy{}, feed(r.setPolicy, r.deletePolicy)).
		Watches(&appsv1alpha1.PodOperationApproval{}, feed(r.setApproval, r.deleteApproval)).
		WatchesMetadata(&corev1.Namespace{}, feed(r.setNamespace, r.deleteNamespace)).
		Watches(&appsv1.ReplicaSet{}, feed(r.setOwner, r.deleteOwner)).
		Watches(&appsv1.Deployment{}, feed(r.setOwner, r.deleteOwner)).
		Watches(&appsv1.StatefulSet{}, feed(r.setOwner, r.deleteOwner)).
		Watches(&policyv1.PodDisruptionBudget{}, feed(r.setDisruptionBudget, r.deleteDisruptionBudget)).
		Watches(&appsv1.DaemonSet{}, feed(r.setOwner, r.deleteOwner)).
		Watches(&batchv1.Job{}, feed(r.setOwner, r.deleteOwner)).
		WithOptions(controller.TypedOptions[string]{MaxConcurrentReconciles: r.workers, EnableWarmup: &warm}).
		Complete(r)
}

// feed returns a handler that writes every object of a watch to the index, which notifies the
// queue. The controller starts its workers after each watch has delivered its first list, so
// no pod is evaluated without its rules.
func feed(set, remove func(client.Object)) handler.TypedEventHandler[client.Object, string] {
	return handler.TypedFuncs[client.Object, string]{
		CreateFunc: func(_ context.Context, e event.CreateEvent, _ workqueue.TypedRateLimitingInterface[string]) {
			set(e.Object)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ workqueue.TypedRateLimitingInterface[string]) {
			set(e.ObjectNew)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ workqueue.TypedRateLimitingInterface[string]) {
			remove(e.Object)
		},
	}
}

func (r *Reconciler) setRule(object client.Object) {
	if rule, ok := object.(*appsv1alpha1.PodTransitionRule); ok {
		r.index.SetRule(rule)
	}
}

func (r *Reconciler) deleteRule(object client.Object) {
	r.index.RetireRule(client.ObjectKeyFromObject(object), r.clock.Now())
}

func (r *Reconciler) setPolicy(object client.Object) {
	if shared, ok := object.(*appsv1alpha1.PodTransitionPolicy); ok {
		r.index.SetPolicy(shared)
	}
}

func (r *Reconciler) deletePolicy(object client.Object) { r.index.DeletePolicy(object.GetName()) }

func (r *Reconciler) setApproval(object client.Object) {
	if approval, ok := object.(*appsv1alpha1.PodOperationApproval); ok {
		r.index.SetApproval(approval)
	}
}

func (r *Reconciler) deleteApproval(object client.Object) {
	if approval, ok := object.(*appsv1alpha1.PodOperationApproval); ok {
		r.index.DeleteApproval(approval)
	}
}

func (r *Reconciler) setNamespace(object client.Object) {
	r.index.SetNamespace(object.GetName(), object.GetLabels())
	reason := podstate.BreakGlass(object.GetAnnotations())
	r.index.SetBreakGlass(object.GetName(), reason)
	if object.GetName() == r.managerNamespace {
		r.index.SetBreakGlass("", reason)
		r.index.SetFreeze(podstate.Freeze(object.GetAnnotations()))
	}
}

func (r *Reconciler) deleteNamespace(object client.Object) {
	r.index.DeleteNamespace(object.GetName())
	r.metrics.follow(object.GetName(), false)
	if object.GetName() == r.managerNamespace {
		r.index.SetBreakGlass("", "")
		r.index.SetFreeze(rule.Freeze{})
	}
}

func (r *Reconciler) setDisruptionBudget(object client.Object) {
	if budget, ok := object.(*policyv1.PodDisruptionBudget); ok {
		r.index.SetDisruptionBudget(podindex.NewDisruptionBudget(budget))
	}
}

func (r *Reconciler) deleteDisruptionBudget(object client.Object) {
	r.index.RetireDisruptionBudget(client.ObjectKeyFromObject(object), r.clock.Now())
}
