package pod

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/deferreddelete"
	"github.com/podops-dev/podops/pkg/podindex"
	"github.com/podops-dev/podops/pkg/rule"
	"github.com/podops-dev/podops/pkg/webhooks/clientauth"
)

// Deferrer records a delete that was deferred. It must not block.
type Deferrer interface {
	Defer(pod types.NamespacedName, uid types.UID)
}

// DeleteDeferrer is the validating webhook of DELETE. It writes nothing itself: it passes deferred
// deletes to a Deferrer, except deletes of a dry run.
type DeleteDeferrer struct {
	decoder   admission.Decoder
	reader    client.Reader // cached
	apiReader client.Reader
	deferrer  Deferrer
}

// NewDeleteDeferrer returns the webhook. reader is a cache of namespaces, ReplicaSets and
// PodTransitionRules; apiReader reads from the API server.
func NewDeleteDeferrer(decoder admission.Decoder, reader, apiReader client.Reader, deferrer Deferrer) *DeleteDeferrer {
	return &DeleteDeferrer{decoder: decoder, reader: reader, apiReader: apiReader, deferrer: deferrer}
}

// Handle lets a DELETE pass or defers it.
func (d *DeleteDeferrer) Handle(ctx context.Context, req admission.Request) admission.Response {
	_, pod, err := decode(d.decoder, req)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if !deferreddelete.AppliesTo(pod) || deferreddelete.MayDelete(pod, d.ownerState(ctx, pod), d.namespaceTerminating(ctx, pod.Namespace)) {
		return admission.Allowed("")
	}
	if req.DryRun == nil || !*req.DryRun {
		d.deferrer.Defer(client.ObjectKeyFromObject(pod), pod.UID)
	}
	ctrllog.FromContext(ctx).V(1).Info("Delete deferred", "user", req.UserInfo.Username)
	return tooManyRequests(d.message(ctx, pod))
}

// tooManyRequests returns 429 without retryAfterSeconds: clients that see it retry at their own
// pace, where 403 or 500 makes them give up.
func tooManyRequests(message string) admission.Response {
	response := admission.Denied(message)
	response.Result.Code = http.StatusTooManyRequests
	response.Result.Reason = metav1.StatusReasonTooManyRequests
	return response
}

// namespaceTerminating reports whether the namespace is being deleted. If the cache does not
// have it, it counts as active: the delete is retried.
func (d *DeleteDeferrer) namespaceTerminating(ctx context.Context, name string) bool {
	namespace := &corev1.Namespace{}
	if err := d.reader.Get(ctx, types.NamespacedName{Name: name}, namespace); err != nil {
		return false
	}
	return namespace.DeletionTimestamp != nil
}

// ownerState returns the state of the ReplicaSet that controls the pod. A deletion that the cache
// shows is final. A ReplicaSet that the cache does not have may be newer than the cache, so the API
// server is read before a pod counts as a pod without an owner. An owner that cannot be read counts
// as present: the garbage collector retries. So does the owner of a pod that the cache does not
// have, unless the API server is known to have sent the review: a flood of forged reviews reads
// nothing from the API server.
func (d *DeleteDeferrer) ownerState(ctx context.Context, pod *corev1.Pod) deferreddelete.OwnerState {
	state := stateIn(ctx, d.reader, pod)
	if state != deferreddelete.OwnerGone {
		return state
	}
	cached := &corev1.Pod{}
	known := d.reader.Get(ctx, client.ObjectKeyFromObject(pod), cached) == nil && cached.UID == pod.UID
	if !known && !clientauth.Verified(ctx) {
		return deferreddelete.OwnerPresent
	}
	return stateIn(ctx, d.apiReader, pod)
}

func stateIn(ctx context.Context, reader client.Reader, pod *corev1.Pod) deferreddelete.OwnerState {
	controller := metav1.GetControllerOfNoCopy(pod)
	set := &appsv1.ReplicaSet{}
	err := reader.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: controller.Name}, set)
	switch {
	case apierrors.IsNotFound(err):
		return deferreddelete.OwnerGone
	case err != nil:
		return deferreddelete.OwnerPresent
	case set.UID != controller.UID:
		return deferreddelete.OwnerGone
	case set.DeletionTimestamp != nil:
		return deferreddelete.OwnerTerminating
	default:
		return deferreddelete.OwnerPresent
	}
}

// maxNamed bounds the PodTransitionRules that a message names.
const maxNamed = 5

// message names a command that shows the reason. ReplicaSets and Deployments keep the first
// message in their conditions for as long as deletes are rejected, so it contains nothing that
// changes. It names PodTransitionRules only when the API server is known to have sent the
// review: any other client may name any namespace.
func (d *DeleteDeferrer) message(ctx context.Context, pod *corev1.Pod) string {
	const intro = "PodOps holds this delete (normal during a rollout). Why: kubectl "
	if !clientauth.Verified(ctx) {
		return intro + fmt.Sprintf("get podtransitionrule -n %s -o wide", pod.Namespace)
	}
	names := d.selecting(ctx, pod)
	if len(names) == 0 {
		return intro + fmt.Sprintf("describe pod %s -n %s", pod.Name, pod.Namespace)
	}
	return intro + fmt.Sprintf("get podtransitionrule %s -n %s -o wide", strings.Join(names, " "), pod.Namespace)
}

// selecting returns the names of the PodTransitionRules that select the pod and have a rule that
// applies to its delete, sorted; the first maxNamed. It returns none when the cache cannot be read.
func (d *DeleteDeferrer) selecting(ctx context.Context, pod *corev1.Pod) []string {
	list := &appsv1alpha1.PodTransitionRuleList{}
	if err := d.reader.List(ctx, list, client.InNamespace(pod.Namespace)); err != nil {
		return nil
	}
	var names []string
	for i := range list.Items {
		selector, err := podindex.Selector(&list.Items[i])
		if err == nil && selector.Matches(labels.Set(pod.Labels)) {
			if applies(&list.Items[i], pod) {
				names = append(names, list.Items[i].Name)
			}
		}
	}
	slices.Sort(names)
	return names[:min(len(names), maxNamed)]
}

// applies reports whether some PreCheck rule of a PodTransitionRule applies to the delete of a
// pod that it selects.
func applies(ruleset *appsv1alpha1.PodTransitionRule, pod *corev1.Pod) bool {
	skipped := podindex.SkipRules(pod.Annotations)
	return slices.ContainsFunc(ruleset.Spec.Rules, func(r appsv1alpha1.TransitionRule) bool {
		return !r.Disabled && r.Stage != appsv1alpha1.StagePostCheck && rule.ScopeOf(r).Applies(appsv1alpha1.DeleteOperationType, pod.Labels, skipped)
	})
}
