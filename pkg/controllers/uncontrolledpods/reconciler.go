package uncontrolledpods

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/replicasetscale"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/pkg/state/replicasetpods"
)

// Index stores the available pods of a workload that do not have the control label. It is a *podindex.Index.
type Index interface {
	SetUncontrolled(namespace string, owner types.UID, pods []types.UID)
}

// Reconciler counts the pods without the control label of one workload at a time.
type Reconciler struct {
	cached replicasetpods.Reader
	server client.Reader
	index  Index
	clock  clock.PassiveClock

	mu    sync.Mutex
	since map[Workload]time.Time // of workloads with more pods than the cache
}

// Workload names a StatefulSet, a DaemonSet or a ReplicaSet.
type Workload struct {
	Kind string
	types.NamespacedName
}

// New returns a Reconciler. cached reads pods with the control label, server every pod.
func New(cached replicasetpods.Reader, server client.Reader, index Index, clk clock.PassiveClock) *Reconciler {
	return &Reconciler{cached: cached, server: server, index: index, clock: clk, since: map[Workload]time.Time{}}
}

// The kinds of workloads whose pods are counted.
const (
	kindStatefulSet = "StatefulSet"
	kindDaemonSet   = "DaemonSet"
	kindReplicaSet  = "ReplicaSet"
)

// SetupWithManager registers the controller on the leader.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, workers int) error {
	return builder.TypedControllerManagedBy[Workload](mgr).
		Named("uncontrolled-pods").
		Watches(&appsv1.StatefulSet{}, changes(kindStatefulSet)).
		Watches(&appsv1.DaemonSet{}, changes(kindDaemonSet)).
		Watches(&appsv1.ReplicaSet{}, changes(kindReplicaSet)).
		Watches(&appsv1.Deployment{}, r.adoptions()).
		Watches(&corev1.Pod{}, losses()).
		WithOptions(controller.TypedOptions[Workload]{MaxConcurrentReconciles: workers}).
		Complete(r)
}

type queue = workqueue.TypedRateLimitingInterface[Workload]

// changes adds the workloads whose template has the label. Changes within a few seconds share a list.
func changes(kind string) handler.TypedEventHandler[client.Object, Workload] {
	add := func(object client.Object, q queue) {
		if workload, ok := newFacts(object); ok && workload.controlled {
			q.AddAfter(Workload{kind, client.ObjectKeyFromObject(object)}, spacing)
		}
	}
	return handler.TypedFuncs[client.Object, Workload]{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { add(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { add(e.Object, q) },
	}
}

// adoptions adds the ReplicaSets without the label in their template of a Deployment whose template has it. Its status changes
// with theirs.
func (r *Reconciler) adoptions() handler.TypedEventHandler[client.Object, Workload] {
	add := func(ctx context.Context, object client.Object, q queue) {
		deployment, ok := object.(*appsv1.Deployment)
		if !ok || !appsv1alpha1.IsControlled(deployment.Spec.Template.Labels) {
			return
		}
		sets, err := r.cached.Sets(ctx, deployment.Namespace, deployment.UID)
		if err != nil {
			ctrllog.FromContext(ctx).Error(err, "Finding the ReplicaSets of a Deployment", "deployment", client.ObjectKeyFromObject(deployment))
		}
		for _, set := range sets {
			if !replicasetscale.IsControlled(set) && set.Status.Replicas > 0 {
				q.AddAfter(Workload{kindReplicaSet, client.ObjectKeyFromObject(set)}, spacing)
			}
		}
	}
	return handler.TypedFuncs[client.Object, Workload]{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { add(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { add(ctx, e.ObjectNew, q) },
	}
}

// losses adds the workload of a pod that the watch does not report any more: it is gone, or has lost the label.
func losses() handler.TypedEventHandler[client.Object, Workload] {
	return handler.TypedFuncs[client.Object, Workload]{
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			controller := metav1.GetControllerOfNoCopy(e.Object)
			if controller != nil && newWorkload(controller.Kind) != nil {
				q.AddAfter(Workload{controller.Kind, types.NamespacedName{Namespace: e.Object.GetNamespace(), Name: controller.Name}}, spacing)
			}
		},
	}
}

// newWorkload returns an empty object of a kind; nil for a kind whose pods are not counted.
func newWorkload(kind string) client.Object {
	switch kind {
	case kindStatefulSet:
		return &appsv1.StatefulSet{}
	case kindDaemonSet:
		return &appsv1.DaemonSet{}
	case kindReplicaSet:
		return &appsv1.ReplicaSet{}
	default:
		return nil
	}
}

// facts are the fields of a workload that counting its pods needs.
type facts struct {
	// controlled is true if the template has the control label: no rule covers other workloads.
	controlled bool

	selector *metav1.LabelSelector
	minReady time.Duration

	// more reports whether the status counts more pods than these, which have the label.
	more func(pods []*corev1.Pod) bool
}

func newFacts(object client.Object) (facts, bool) {
	moreThan := func(counted int32) func([]*corev1.Pod) bool {
		return func(pods []*corev1.Pod) bool { return int(counted) > len(pods) }
	}
	seconds := func(number int32) time.Duration { return time.Duration(number) * time.Second }
	switch o := object.(type) {
	case *appsv1.StatefulSet:
		return facts{
			appsv1alpha1.IsControlled(o.Spec.Template.Labels), o.Spec.Selector, seconds(o.Spec.MinReadySeconds), moreThan(o.Status.Replicas),
		}, true
	case *appsv1.DaemonSet:
		return facts{
			appsv1alpha1.IsControlled(o.Spec.Template.Labels), o.Spec.Selector, seconds(o.Spec.MinReadySeconds),
			moreThan(o.Status.CurrentNumberScheduled),
		}, true
	case *appsv1.ReplicaSet:
		return facts{
			appsv1alpha1.IsControlled(o.Spec.Template.Labels), o.Spec.Selector, seconds(o.Spec.MinReadySeconds),
			func(pods []*corev1.Pod) bool { return replicasetscale.Others(o, pods) > 0 },
		}, true
	default:
		return facts{}, false
	}
}

// Reconcile lists the pods without the label of a workload, once its status has counted them for a while, and again
// until it has none.
func (r *Reconciler) Reconcile(ctx context.Context, key Workload) (reconcile.Result, error) {
	object := newWorkload(key.Kind)
	if err := r.cached.Get(ctx, key.NamespacedName, object); err != nil {
		r.note(key, time.Time{})
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	workload, _ := newFacts(object)
	pods, err := r.cached.Pods(ctx, key.Namespace, object.GetUID())
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("%s %s: %w", key.Kind, key.NamespacedName, err)
	}
	counts, err := r.counts(ctx, object, workload.controlled, pods)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !counts {
		r.note(key, time.Time{})
		r.index.SetUncontrolled(key.Namespace, object.GetUID(), nil)
		return reconcile.Result{}, nil
	}
	since, now := r.last(key), r.clock.Now()
	list, wait := due(since, workload.more(pods), now)
	switch {
	case wait == 0 && !list:
		since = time.Time{}
	case since.IsZero():
		since = now
	}
	r.note(key, since)
	if !list {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	available, remain, err := r.count(ctx, object, workload)
	r.index.SetUncontrolled(key.Namespace, object.GetUID(), available)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !remain {
		r.note(key, time.Time{})
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: refresh}, nil
}

// counts reports whether the pods without the label of a workload count: a rule may cover the workload, or the Deployment that
// controls it, and one of the pods with the label may wait for that rule.
func (r *Reconciler) counts(ctx context.Context, object client.Object, controlled bool, pods []*corev1.Pod) (bool, error) {
	set, ok := object.(*appsv1.ReplicaSet)
	if controlled || !ok || set.Status.Replicas == 0 {
		return controlled && len(pods) > 0, nil
	}
	deployment, err := r.cached.Deployment(ctx, set)
	if err != nil || deployment == nil || !appsv1alpha1.IsControlled(deployment.Spec.Template.Labels) {
		return false, err
	}
	related, err := r.cached.Related(ctx, set)
	return len(related) > 0, err
}

// count lists the pods of a workload without the label, and returns the available ones, and whether there are any.
// No pod counts after a failure.
func (r *Reconciler) count(ctx context.Context, object client.Object, workload facts) (available []types.UID, remain bool, err error) {
	selector, err := metav1.LabelSelectorAsSelector(workload.selector)
	if err != nil {
		return nil, false, fmt.Errorf("parsing spec.selector of %s: %w", client.ObjectKeyFromObject(object), err)
	}
	uncontrolled, err := labels.NewRequirement(appsv1alpha1.ControlLabelKey, selection.NotEquals, []string{appsv1alpha1.ControlLabelValue})
	if err != nil {
		return nil, false, fmt.Errorf("selecting pods without the label %s: %w", appsv1alpha1.ControlLabelKey, err)
	}
	list := &corev1.PodList{}
	err = r.server.List(ctx, list, client.InNamespace(object.GetNamespace()), client.Limit(maxPods),
		client.MatchingLabelsSelector{Selector: selector.Add(*uncontrolled)})
	if err != nil {
		return nil, false, fmt.Errorf("listing the pods of %s without the label %s: %w",
			client.ObjectKeyFromObject(object), appsv1alpha1.ControlLabelKey, err)
	}
	pods := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	available, remain = podindex.AvailablePods(object.GetUID(), workload.minReady, pods, r.clock.Now())
	return available, remain, nil
}

// last returns since when a workload has more pods than the cache.
func (r *Reconciler) last(key Workload) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.since[key]
}

// note records since when a workload has more pods than the cache; zero for one that has not.
func (r *Reconciler) note(key Workload, since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if since.IsZero() {
		delete(r.since, key)
		return
	}
	r.since[key] = since
}
