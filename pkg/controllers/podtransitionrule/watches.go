package podtransitionrule

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/podindex"
)

// Notifier carries the names of namespaces in which something changed from the index
// to the queue of the controller. What comes before the controller starts is kept.
type Notifier struct {
	mu      sync.Mutex
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	pending map[string]bool
}

// NewNotifier returns a Notifier for podindex.NewIndex.
func NewNotifier() *Notifier { return &Notifier{pending: map[string]bool{}} }

// Notify puts a namespace in the queue.
func (n *Notifier) Notify(namespace string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.queue == nil {
		n.pending[namespace] = true
		return
	}
	n.queue.Add(requestFor(namespace))
}

func (n *Notifier) start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.queue = queue
	for namespace := range n.pending {
		queue.Add(requestFor(namespace))
	}
	n.pending = nil
	return nil
}

func requestFor(namespace string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: namespace}}
}

// SetupWithManager registers the controller, its watches and the reflector that feeds
// the index of pods.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, notifier *Notifier, clientset kubernetes.Interface) error {
	if err := mgr.Add(podReflector{index: r.index, clientset: clientset}); err != nil {
		return fmt.Errorf("adding the reflector of pods: %w", err)
	}
	warm := true
	return ctrl.NewControllerManagedBy(mgr).
		Named("podtransitionrule").
		WatchesRawSource(source.Func(notifier.start)).
		Watches(&appsv1alpha1.PodTransitionRule{}, feed(r.setRule, r.deleteRule)).
		Watches(&appsv1alpha1.PodTransitionPolicy{}, feed(r.setPolicy, r.deletePolicy)).
		WatchesMetadata(&corev1.Namespace{}, feed(r.setNamespace, r.deleteNamespace)).
		Watches(&appsv1.ReplicaSet{}, feed(r.setOwner, r.deleteOwner)).
		Watches(&appsv1.Deployment{}, feed(r.setOwner, r.deleteOwner)).
		Watches(&appsv1.StatefulSet{}, feed(r.setOwner, r.deleteOwner)).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.workers, EnableWarmup: &warm}).
		Complete(r)
}

// feed hands every object of a watch to the index, which notifies by itself. The
// controller starts its workers only after each watch has delivered its first list, so
// no pod is ever decided without its rules.
func feed(set, remove func(client.Object)) handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, _ workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			set(e.Object)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			set(e.ObjectNew)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ workqueue.TypedRateLimitingInterface[reconcile.Request]) {
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

func (r *Reconciler) setNamespace(object client.Object) {
	r.index.SetNamespace(object.GetName(), object.GetLabels())
}

func (r *Reconciler) deleteNamespace(object client.Object) { r.index.DeleteNamespace(object.GetName()) }

func (r *Reconciler) setOwner(object client.Object) {
	owner := podindex.Owner{
		UID: object.GetUID(), Namespace: object.GetNamespace(), Name: object.GetName(),
		Terminating: object.GetDeletionTimestamp() != nil,
	}
	if controller := metav1.GetControllerOf(object); controller != nil {
		owner.Controller = controller.UID
	}
	switch o := object.(type) {
	case *appsv1.ReplicaSet:
		// A revision that is missing or no number counts as the oldest.
		owner.Revision, _ = strconv.ParseInt(o.Annotations[appsv1alpha1.DeploymentRevisionAnnotationKey], 10, 64)
		owner.Kind, owner.Desired, owner.TemplateLabels = "ReplicaSet", replicas(o.Spec.Replicas), o.Spec.Template.Labels
	case *appsv1.Deployment:
		owner.Kind, owner.Desired, owner.TemplateLabels = "Deployment", replicas(o.Spec.Replicas), o.Spec.Template.Labels
	case *appsv1.StatefulSet:
		owner.Kind, owner.Desired, owner.TemplateLabels = "StatefulSet", replicas(o.Spec.Replicas), o.Spec.Template.Labels
	default:
		return
	}
	r.index.SetOwner(owner)
}

// replicas is what the API server takes an unset field for.
func replicas(wanted *int32) int {
	if wanted == nil {
		return 1
	}
	return int(*wanted)
}

func (r *Reconciler) deleteOwner(object client.Object) {
	r.index.DeleteOwner(object.GetNamespace(), object.GetUID())
}

// podReflector feeds the index of pods. It runs on every replica, so that a new leader
// starts with what it needs.
type podReflector struct {
	index     *podindex.Index
	clientset kubernetes.Interface
}

var _ manager.LeaderElectionRunnable = podReflector{}

// NeedLeaderElection is false: the index is warm before the lease is held.
func (p podReflector) NeedLeaderElection() bool { return false }

// Start lists and watches the controlled pods until ctx ends.
func (p podReflector) Start(ctx context.Context) error {
	selected := func(options *metav1.ListOptions) {
		options.LabelSelector = appsv1alpha1.ControlLabelKey + "=" + appsv1alpha1.ControlLabelValue
	}
	pods := p.clientset.CoreV1().Pods(metav1.NamespaceAll)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			selected(&options)
			return pods.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			selected(&options)
			return pods.Watch(ctx, options)
		},
	}
	cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, p.clientset), &corev1.Pod{}, p.index.PodStore(),
		cache.ReflectorOptions{Name: "podops-pods"}).RunWithContext(ctx)
	return nil
}
