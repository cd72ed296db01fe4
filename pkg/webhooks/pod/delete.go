package pod

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/pkg/webhooks/clientauth"
)

// Deferrer begins the lifecycle of a pod for a delete or an eviction. It must not block.
type Deferrer interface {
	Defer(pod types.NamespacedName, uid types.UID, request deferreddelete.Request)

	// Ended records that the request for a pod has ended, and why the pod goes back into service: LapseKept if it is there after the
	// request was admitted, LapseAbandoned if no client waits for it.
	Ended(pod types.NamespacedName, uid types.UID, lapse deferreddelete.Lapse)
}

// DeferConfig configures the webhooks of deletes and evictions.
type DeferConfig struct {
	Decoder   admission.Decoder
	Reader    client.Reader // a cache of namespaces, pods, workloads and PodTransitionRules
	APIReader client.Reader
	Deferrer  Deferrer
	Waits     *Waits
	Reviews   *prometheus.CounterVec // by NewReviews

	// Identity is the user name of this manager at the API server.
	Identity string

	// HoldPreemption is true where pods are held for the scheduler, too.
	HoldPreemption bool
}

// reviewer decides about deletes and evictions of pods. It writes nothing itself: it passes deferred
// requests to a Deferrer, except dry runs.
type reviewer struct{ DeferConfig }

// NewReviews returns the counter of deletes and evictions by method, outcome and reason.
func NewReviews(registry prometheus.Registerer) (*prometheus.CounterVec, error) {
	reviews := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "podops_delete_reviews_total",
		Help: "Reviews of deletes and evictions of controlled pods, by method, outcome (Allow, Hold) and reason. " +
			"A request that waited counts with its end; each repeated request is another review. On every replica.",
	}, []string{"method", "outcome", "reason"})
	if err := registry.Register(reviews); err != nil {
		return nil, fmt.Errorf("registering the metric of deletes: %w", err)
	}
	return reviews, nil
}

// DeleteDeferrer is the validating webhook of DELETE, and of the UPDATE with which the Job controller begins one.
type DeleteDeferrer struct{ reviewer }

// NewDeleteDeferrer returns the webhook of DELETE.
func NewDeleteDeferrer(config DeferConfig) *DeleteDeferrer { return &DeleteDeferrer{reviewer{config}} }

// Handle lets a DELETE pass or defers it. The reviews of a collection have no name: the pod is
// the old object. An UPDATE is the request that the Job controller sends before its DELETE.
func (d *DeleteDeferrer) Handle(ctx context.Context, req admission.Request) admission.Response {
	requested, pod, err := decode(d.Decoder, req)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if req.Operation == admissionv1.Update && !d.beginsDelete(ctx, req, pod, requested) {
		return admission.Allowed("")
	}
	var options metav1.DeleteOptions
	if len(req.Options.Raw) > 0 && req.Operation == admissionv1.Delete {
		if err := json.Unmarshal(req.Options.Raw, &options); err != nil {
			return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding delete options: %w", err))
		}
	}
	method := deferreddelete.MethodDelete
	if req.Name == "" && req.Operation == admissionv1.Delete {
		method = deferreddelete.MethodDeleteCollection
	}
	return d.answer(ctx, req, pod, method, options)
}

// beginsDelete reports whether the controller of a Job removes the tracking finalizer of a pod in order to delete it.
func (d *DeleteDeferrer) beginsDelete(ctx context.Context, req admission.Request, pod, requested *corev1.Pod) bool {
	actor := deferreddelete.ClassifyActor(req.UserInfo.Username, req.UserInfo.Groups, deferreddelete.MethodDelete, pod, d.Identity)
	if actor != deferreddelete.ActorOwner || !deferreddelete.Untracks(pod, requested) {
		return false
	}
	owner, _ := d.owner(ctx, pod)
	job, _ := owner.(*batchv1.Job)
	return deferreddelete.Counts(job)
}

// answer decides about a request: it passes, waits, or is held.
func (d *reviewer) answer(
	ctx context.Context, req admission.Request, pod *corev1.Pod, method deferreddelete.Method, options metav1.DeleteOptions,
) admission.Response {
	owner, state := d.owner(ctx, pod)
	if state == deferreddelete.OwnerGone && method == deferreddelete.MethodEviction && clientauth.Verified(ctx) {
		pod, owner, state = d.stored(ctx, pod)
	}
	reviewed := deferreddelete.Review{
		Pod: pod, Owner: state, NamespaceTerminating: d.namespaceTerminating(ctx, pod.Namespace), Method: method,
		Actor:  deferreddelete.ClassifyActor(req.UserInfo.Username, req.UserInfo.Groups, method, pod, d.Identity),
		DryRun: req.DryRun != nil && *req.DryRun || len(options.DryRun) > 0,
		Forced: isForced(options, pod), UID: preconditionUID(options),
		HoldPreemption: d.HoldPreemption, Forgeable: !clientauth.Verified(ctx),
	}
	if method == deferreddelete.MethodEviction {
		reviewed.Budgets = d.budgets(ctx, pod)
	}
	decision := deferreddelete.Decide(reviewed)
	request := deferreddelete.Request{Method: method, Actor: decision.Actor, User: req.UserInfo.Username}
	request.Groups, request.GroupsTruncated = lifecycle.BoundGroups(req.UserInfo.Groups)
	if owner != nil {
		request.OwnerGeneration = owner.GetGeneration()
	}
	end := d.end(ctx, req, reviewed, request, decision)
	d.Reviews.WithLabelValues(string(method), string(end.outcome), string(end.reason)).Inc()
	if end.reason == deferreddelete.ReasonPermitted && !reviewed.DryRun && !reviewed.Forgeable {
		d.Deferrer.Ended(client.ObjectKeyFromObject(pod), pod.UID, deferreddelete.LapseKept)
	}
	if end.outcome != deferreddelete.Allow {
		ctrllog.FromContext(ctx).V(1).Info("Delete held", "method", method, "reason", end.reason, "user", req.UserInfo.Username)
	}
	return end.response
}

// end returns the answer to a request, which may wait for it.
func (d *reviewer) end(
	ctx context.Context, req admission.Request, reviewed deferreddelete.Review, request deferreddelete.Request, decision deferreddelete.Decision,
) ended {
	switch {
	case decision.Outcome == deferreddelete.Allow:
		return ended{admission.Allowed(""), decision.Outcome, decision.Reason}
	case decision.Outcome == deferreddelete.Await:
		return d.await(ctx, req, reviewed, request, decision.Reason)
	case decision.Record:
		d.Deferrer.Defer(client.ObjectKeyFromObject(reviewed.Pod), reviewed.Pod.UID, request)
	}
	return held(d.message(ctx, reviewed.Pod, decision), decision.Reason)
}

// isForced reports whether a request leaves a pod no time although its spec does. The API server has set
// the default of the spec in the options of a DELETE before it calls admission.
func isForced(options metav1.DeleteOptions, pod *corev1.Pod) bool {
	byDefault := pod.Spec.TerminationGracePeriodSeconds
	return options.GracePeriodSeconds != nil && *options.GracePeriodSeconds == 0 && (byDefault == nil || *byDefault != 0)
}

// preconditionUID returns the UID that a request is for, empty if it is for any pod of the name.
func preconditionUID(options metav1.DeleteOptions) types.UID {
	if options.Preconditions == nil || options.Preconditions.UID == nil {
		return ""
	}
	return *options.Preconditions.UID
}

// namespaceTerminating reports whether the namespace is being deleted. If the cache does not
// have it, it counts as active: the delete is retried.
func (d *reviewer) namespaceTerminating(ctx context.Context, name string) bool {
	namespace := &corev1.Namespace{}
	if err := d.Reader.Get(ctx, types.NamespacedName{Name: name}, namespace); err != nil {
		return false
	}
	return namespace.DeletionTimestamp != nil
}

// owner returns the controller of the pod and its state. A deletion that the cache shows is final.
// An owner that the cache does not have may be newer than the cache, so the API server is read
// before a pod counts as a pod without an owner. An owner that cannot be read counts as present:
// the garbage collector retries. So does the owner of a pod that the cache does not have, unless
// the API server is known to have sent the review: a flood of forged reviews reads nothing from
// the API server. An owner is read only if it is of a kind of Kubernetes whose controller PodOps
// knows.
func (d *reviewer) owner(ctx context.Context, pod *corev1.Pod) (client.Object, deferreddelete.OwnerState) {
	object, isCached := deferreddelete.NewOwner(pod)
	if object == nil || !appsv1alpha1.IsControlled(pod.Labels) {
		return nil, deferreddelete.OwnerPresent
	}
	if isCached {
		if state := stateIn(ctx, d.Reader, pod, object); state != deferreddelete.OwnerGone {
			return object, state
		}
	}
	cached := &corev1.Pod{}
	known := d.Reader.Get(ctx, client.ObjectKeyFromObject(pod), cached) == nil && cached.UID == pod.UID
	if !known && !clientauth.Verified(ctx) {
		return nil, deferreddelete.OwnerPresent
	}
	state := stateIn(ctx, d.APIReader, pod, object)
	if object.GetUID() == "" {
		return nil, state
	}
	return object, state
}

// stored returns the pod of an eviction as the API server has it, with its controller. The cache may not show yet that the pod was
// released, as by a deletion of its owner with orphans, which is no reason to let it go. A pod that cannot be read is held.
func (d *reviewer) stored(ctx context.Context, cached *corev1.Pod) (pod *corev1.Pod, owner client.Object, state deferreddelete.OwnerState) {
	pod = &corev1.Pod{}
	switch err := d.APIReader.Get(ctx, client.ObjectKeyFromObject(cached), pod); {
	case apierrors.IsNotFound(err):
		return cached, nil, deferreddelete.OwnerGone
	case err != nil:
		return cached, nil, deferreddelete.OwnerPresent
	}
	owner, state = d.owner(ctx, pod)
	return pod, owner, state
}

// stateIn reads the owner of a pod into an object.
func stateIn(ctx context.Context, reader client.Reader, pod *corev1.Pod, owner client.Object) deferreddelete.OwnerState {
	controller := metav1.GetControllerOfNoCopy(pod)
	err := reader.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: controller.Name}, owner)
	return deferreddelete.StateWhenRead(pod, owner, err)
}

// maxNamed bounds the PodTransitionRules that a message names.
const maxNamed = 5

// message is the answer to a controller, and to a request that does not wait. It names a command that shows the
// reason. ReplicaSets and Deployments keep the first
// message in their conditions for as long as deletes are rejected, so it contains nothing that
// changes.
func (d *reviewer) message(ctx context.Context, pod *corev1.Pod, decision deferreddelete.Decision) string {
	why := d.why(ctx, pod)
	switch decision.Reason {
	case deferreddelete.ReasonFormer:
		return "PodOps rejects this delete: the pod has no owner any more whose pods this controller deletes; its cache is outdated"
	case deferreddelete.ReasonOwner:
		return "PodOps holds this delete (normal during a rollout). Why: " + why
	case deferreddelete.ReasonEviction, deferreddelete.ReasonPreemption:
		return "PodOps holds this eviction until the rules of the pod permit it. Why: " + why
	default:
		return "PodOps holds this delete; try again in a minute. Why: " + why
	}
}

// why returns the command that shows why the pod waits. It names PodTransitionRules only when the
// API server is known to have sent the review: any other client may name any namespace.
func (d *reviewer) why(ctx context.Context, pod *corev1.Pod) string {
	if !clientauth.Verified(ctx) {
		return fmt.Sprintf("kubectl get podtransitionrule -n %s -o wide", pod.Namespace)
	}
	names := d.selecting(ctx, pod)
	if len(names) == 0 {
		return fmt.Sprintf("kubectl describe pod %s -n %s", pod.Name, pod.Namespace)
	}
	return fmt.Sprintf("kubectl get podtransitionrule %s -n %s -o wide", strings.Join(names, " "), pod.Namespace)
}

// selecting returns the names of the PodTransitionRules that select the pod and have an enforced rule that
// applies to its delete, sorted; the first maxNamed. It returns no names when the cache cannot be read.
func (d *reviewer) selecting(ctx context.Context, pod *corev1.Pod) []string {
	list := &appsv1alpha1.PodTransitionRuleList{}
	if err := d.Reader.List(ctx, list, client.InNamespace(pod.Namespace)); err != nil {
		return nil
	}
	var names []string
	for i := range list.Items {
		if podindex.GuardsDelete(&list.Items[i], pod) {
			names = append(names, list.Items[i].Name)
		}
	}
	slices.Sort(names)
	return names[:min(len(names), maxNamed)]
}
