package deferreddelete

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/state/podindex"
)

// EventUnguarded reports that a pod is being removed although its rules had not permitted it. It
// never changes.
const EventUnguarded = "DeletedUnguarded"

// EventUpdatedUnguarded reports that the spec of a pod was changed in place without an operation that its
// rules had permitted. It never changes.
const EventUpdatedUnguarded = "UpdatedUnguarded"

// Unguarded reports pods that are removed past their rules: by an event on the owner of the pod,
// or on a pod without an owner, and by a metric. It likewise reports pods that are updated in place past their
// rules, by an event on the pod. It watches pods, so it also sees requests that no
// webhook reviewed. It runs on the leader.
type Unguarded struct {
	informers cache.Informers
	reader    client.Reader // the same cache
	recorder  events.EventRecorder
	metrics   *Metrics

	mu   sync.Mutex
	seen map[types.UID]bool // pods that are being removed
}

// NewUnguarded returns an Unguarded that reads from a cache of controlled pods.
func NewUnguarded(informers cache.Cache, recorder events.EventRecorder, metrics *Metrics) *Unguarded {
	return &Unguarded{informers: informers, reader: informers, recorder: recorder, metrics: metrics, seen: map[types.UID]bool{}}
}

// Start watches pods and namespaces until ctx ends.
func (u *Unguarded) Start(ctx context.Context) error {
	endPods, err := u.watch(ctx, &corev1.Pod{}, toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { u.observe(ctx, object) },
		UpdateFunc: func(before, object any) {
			u.observe(ctx, object)
			u.observeUpdate(ctx, before, object)
		},
		DeleteFunc: u.forget,
	})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	endNamespaces, err := u.watch(ctx, &corev1.Namespace{}, toolscache.ResourceEventHandlerFuncs{DeleteFunc: u.forgetNamespace})
	if err != nil {
		return errors.Join(fmt.Errorf("watching namespaces: %w", err), endPods())
	}
	<-ctx.Done()
	return errors.Join(endPods(), endNamespaces())
}

// watch adds a handler to the informer of a kind, and returns the function that removes it.
func (u *Unguarded) watch(ctx context.Context, kind client.Object, handler toolscache.ResourceEventHandler) (end func() error, err error) {
	informer, err := u.informers.GetInformer(ctx, kind)
	if err != nil {
		return nil, err
	}
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return nil, err
	}
	return func() error {
		if err := informer.RemoveEventHandler(registration); err != nil {
			return fmt.Errorf("ending the watch of %T: %w", kind, err)
		}
		return nil
	}, nil
}

// observe reports a pod that is being removed, once.
func (u *Unguarded) observe(ctx context.Context, object any) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	if u.metrics.unguarded.Lacks(pod.Namespace) && !u.namespaceTerminating(ctx, pod.Namespace) {
		u.metrics.unguarded.Begin(pod.Namespace)
		u.metrics.updated.Begin(pod.Namespace)
	}
	if !deferreddelete.Removed(pod) || !u.isNew(pod.UID) {
		return
	}
	reason, unguarded := deferreddelete.Unguarded(pod, u.ownerState(ctx, pod), u.namespaceTerminating(ctx, pod.Namespace))
	if !unguarded || !u.isRuled(ctx, pod, podindex.GuardsDelete) {
		return
	}
	u.metrics.unguarded.Inc(pod.Namespace, string(reason))
	u.recorder.Eventf(eventSubject(pod), nil, corev1.EventTypeWarning, EventUnguarded, string(reason),
		"pod %s is removed although its rules had not permitted it: %s", pod.Name, explained(reason, pod))
}

// observeUpdate reports a change of the spec in place, which is one step of the pod's generation.
func (u *Unguarded) observeUpdate(ctx context.Context, earlier, later any) {
	before, isPod := earlier.(*corev1.Pod)
	after, ok := later.(*corev1.Pod)
	if !isPod || !ok || !deferreddelete.UpdatedUnguarded(before, after) || u.outside(ctx, after.Namespace) || !u.isRuled(ctx, before, podindex.GuardsUpdate) {
		return
	}
	u.metrics.updated.Inc(after.Namespace)
	u.recorder.Eventf(after, nil, corev1.EventTypeWarning, EventUpdatedUnguarded, "Update",
		"the spec was changed in place (generation %d) without an operation that its rules had permitted; "+
			"unguardedUpdates: Deny in a PodTransitionRule denies such requests", after.Generation)
}

// outside reports whether a namespace is out of PodOps, or terminating.
func (u *Unguarded) outside(ctx context.Context, name string) bool {
	namespace := &corev1.Namespace{}
	err := u.reader.Get(ctx, types.NamespacedName{Name: name}, namespace)
	return err != nil || namespace.DeletionTimestamp != nil || name == metav1.NamespaceSystem || namespace.Labels[appsv1alpha1.ControlLabelKey] == "false"
}

// isNew records that a pod is being removed. It returns false if that was known.
func (u *Unguarded) isNew(uid types.UID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.seen[uid] {
		return false
	}
	u.seen[uid] = true
	return true
}

func (u *Unguarded) forget(object any) {
	if unknown, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.seen, pod.UID)
}

// forgetNamespace ends the series of a deleted namespace.
func (u *Unguarded) forgetNamespace(object any) {
	if unknown, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	if namespace, ok := object.(*corev1.Namespace); ok {
		u.metrics.unguarded.End(namespace.Name)
		u.metrics.updated.End(namespace.Name)
	}
}

// ownerState returns the state of a pod's owner, as far as the cache has its kind.
func (u *Unguarded) ownerState(ctx context.Context, pod *corev1.Pod) deferreddelete.OwnerState {
	owner, isCached := deferreddelete.NewOwner(pod)
	if owner == nil || !isCached {
		return deferreddelete.OwnerPresent
	}
	err := u.reader.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: metav1.GetControllerOfNoCopy(pod).Name}, owner)
	return deferreddelete.StateWhenRead(pod, owner, err)
}

func (u *Unguarded) namespaceTerminating(ctx context.Context, name string) bool {
	namespace := &corev1.Namespace{}
	err := u.reader.Get(ctx, types.NamespacedName{Name: name}, namespace)
	return err != nil || namespace.DeletionTimestamp != nil
}

// isRuled reports whether a PodTransitionRule of its namespace guards a pod.
func (u *Unguarded) isRuled(ctx context.Context, pod *corev1.Pod, guards func(*appsv1alpha1.PodTransitionRule, *corev1.Pod) bool) bool {
	list := &appsv1alpha1.PodTransitionRuleList{}
	if err := u.reader.List(ctx, list, client.InNamespace(pod.Namespace)); err != nil {
		ctrllog.FromContext(ctx).Error(err, "Reading the rules of a pod", "pod", client.ObjectKeyFromObject(pod))
		return false
	}
	for i := range list.Items {
		if guards(&list.Items[i], pod) {
			return true
		}
	}
	return false
}

// eventSubject returns the owner of a pod, or the pod if it has no owner: readers of an event look
// for the object that stays.
func eventSubject(pod *corev1.Pod) runtime.Object {
	controller := metav1.GetControllerOfNoCopy(pod)
	if controller == nil {
		return pod
	}
	return &corev1.ObjectReference{
		APIVersion: controller.APIVersion, Kind: controller.Kind, Namespace: pod.Namespace, Name: controller.Name, UID: controller.UID,
	}
}

// explained describes a reason.
func explained(reason deferreddelete.Reason, pod *corev1.Pod) string {
	switch reason {
	case deferreddelete.ReasonTaintManager:
		return "its node or device has a NoExecute taint"
	case deferreddelete.ReasonPodGC:
		return "its node is deleted or out of service"
	case deferreddelete.ReasonPreemption:
		return "the scheduler needs its room for a pod of higher priority"
	case deferreddelete.ReasonKubelet:
		return "the kubelet ended it because its node has no resources left, or shuts down"
	case deferreddelete.ReasonOwnerDeleted:
		return "its owner is deleted"
	case deferreddelete.ReasonForced:
		return "it was deleted with a grace period of 0 seconds"
	default:
		return unanswered(pod)
	}
}

// unanswered describes a removal that no manager held, or may not have held.
func unanswered(pod *corev1.Pod) string {
	const unanswered = "no manager of PodOps held the request"
	if _, isCached := deferreddelete.NewOwner(pod); isCached || metav1.GetControllerOfNoCopy(pod) == nil {
		return unanswered
	}
	return "its owner, " + deferreddelete.OwnerKind(pod) + ", which PodOps does not read, is deleted, or " + unanswered
}
