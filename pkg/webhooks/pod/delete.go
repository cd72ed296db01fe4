package pod

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/facts"
	"github.com/podops-dev/podops/pkg/promise"
)

// Promiser takes note of a delete that was held. It must not block.
type Promiser interface {
	Promise(pod types.NamespacedName, uid types.UID)
}

// DeleteHolder is the validating webhook of DELETE. It writes nothing itself: a
// promise is handed over, and a dry run leaves none.
type DeleteHolder struct {
	decoder  admission.Decoder
	reader   client.Reader // cached
	promiser Promiser
}

// NewDeleteHolder returns the webhook. reader is a cache of namespaces and
// PodTransitionRules.
func NewDeleteHolder(decoder admission.Decoder, reader client.Reader, promiser Promiser) *DeleteHolder {
	return &DeleteHolder{decoder: decoder, reader: reader, promiser: promiser}
}

// Handle lets a DELETE pass or holds it.
func (h *DeleteHolder) Handle(ctx context.Context, req admission.Request) admission.Response {
	_, pod, err := decode(h.decoder, req)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if !promise.HeldFor(pod) || promise.MayDelete(pod, h.namespaceTerminating(ctx, pod.Namespace)) {
		return admission.Allowed("")
	}
	if req.DryRun == nil || !*req.DryRun {
		h.promiser.Promise(client.ObjectKeyFromObject(pod), pod.UID)
	}
	ctrllog.FromContext(ctx).V(1).Info("Delete held", "user", req.UserInfo.Username)
	return held(h.message(ctx, pod))
}

// held answers 429 without retryAfterSeconds: clients that see it retry at their own
// pace, where 403 or 500 makes them give up (design section 6).
func held(message string) admission.Response {
	response := admission.Denied(message)
	response.Result.Code = http.StatusTooManyRequests
	response.Result.Reason = metav1.StatusReasonTooManyRequests
	return response
}

// namespaceTerminating reports whether everything in the namespace has to go. When the
// cache cannot tell, the namespace counts as alive: the delete is retried.
func (h *DeleteHolder) namespaceTerminating(ctx context.Context, name string) bool {
	namespace := &corev1.Namespace{}
	if err := h.reader.Get(ctx, types.NamespacedName{Name: name}, namespace); err != nil {
		return false
	}
	return namespace.DeletionTimestamp != nil
}

// message names the rules that the pod has to pass, and what they last said.
func (h *DeleteHolder) message(ctx context.Context, pod *corev1.Pod) string {
	intro := fmt.Sprintf("the delete of pod %s is held until its rules allow it and its traffic is off", pod.Name)
	list := &appsv1alpha1.PodTransitionRuleList{}
	if err := h.reader.List(ctx, list, client.InNamespace(pod.Namespace)); err != nil {
		return intro
	}
	var parts []string
	for i := range list.Items {
		selector, err := facts.Selector(&list.Items[i])
		if err == nil && selector.Matches(labels.Set(pod.Labels)) {
			parts = append(parts, describe(&list.Items[i], pod.Name))
		}
	}
	if len(parts) == 0 {
		return intro
	}
	slices.Sort(parts)
	return intro + ": " + strings.Join(parts, "; ")
}

// describe is what the status of one PodTransitionRule says of a pod: the rule that
// blocks it if it is among those listed, and the numbers otherwise.
func describe(rule *appsv1alpha1.PodTransitionRule, pod string) string {
	for _, blocked := range rule.Status.Blocked {
		if blocked.Name == pod && blocked.Stage == appsv1alpha1.StagePreCheck {
			return fmt.Sprintf("%s: %s", blocked.Rule, blocked.Message)
		}
	}
	names := make([]string, 0, len(rule.Spec.Rules))
	for _, r := range rule.Spec.Rules {
		if !r.Disabled && r.Stage != appsv1alpha1.StagePostCheck {
			names = append(names, r.Name)
		}
	}
	return fmt.Sprintf("%s (%s): %d of %d pods available, %d waiting",
		rule.Name, strings.Join(names, ", "), rule.Status.Available, rule.Status.Selected, rule.Status.Waiting)
}
