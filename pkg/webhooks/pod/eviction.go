package pod

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/webhooks/clientauth"
)

// EvictionDeferrer is the validating webhook of evictions. An eviction does not pass the admission
// of DELETE, and its review does not contain the pod.
type EvictionDeferrer struct{ reviewer }

// NewEvictionDeferrer returns the webhook of evictions.
func NewEvictionDeferrer(config DeferConfig) *EvictionDeferrer {
	return &EvictionDeferrer{reviewer{config}}
}

// Handle lets an eviction pass or defers it. Evictions of pods that are not controlled pass. A dry run of
// kubectl drain shows only in the options of the Eviction.
func (d *EvictionDeferrer) Handle(ctx context.Context, req admission.Request) admission.Response {
	eviction := &policyv1.Eviction{} // policy/v1beta1 has the same fields
	if err := json.Unmarshal(req.Object.Raw, eviction); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding eviction: %w", err))
	}
	pod := d.evicted(ctx, types.NamespacedName{Namespace: req.Namespace, Name: req.Name})
	if pod == nil {
		return admission.Allowed("")
	}
	var options metav1.DeleteOptions
	if eviction.DeleteOptions != nil {
		options = *eviction.DeleteOptions
	}
	return d.answer(ctx, req, pod, deferreddelete.MethodEviction, options)
}

// readTimeout bounds the read of a pod that the cache does not have: the pod may be of anyone.
const readTimeout = 2 * time.Second

// evicted returns the pod of an eviction, nil if it does not exist, is not controlled or cannot be read. The
// cache has controlled pods only, and may be behind: a pod that it does not have is read from the API server,
// unless anyone may have sent the review. Almost all of these pods are not controlled, so an error does not
// hold the eviction.
func (d *EvictionDeferrer) evicted(ctx context.Context, key types.NamespacedName) *corev1.Pod {
	pod := &corev1.Pod{}
	if d.Reader.Get(ctx, key, pod) == nil {
		return pod
	}
	if !clientauth.Verified(ctx) {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if err := d.APIReader.Get(bounded, key, pod); err != nil || !appsv1alpha1.IsControlled(pod.Labels) {
		return nil
	}
	return pod
}

// budgets returns how many PodDisruptionBudgets select the pod; 0 if the cache cannot be read.
func (d *reviewer) budgets(ctx context.Context, pod *corev1.Pod) int {
	list := &policyv1.PodDisruptionBudgetList{}
	if err := d.Reader.List(ctx, list, client.InNamespace(pod.Namespace)); err != nil {
		return 0
	}
	count := 0
	for i := range list.Items {
		selector, err := metav1.LabelSelectorAsSelector(list.Items[i].Spec.Selector)
		if err == nil && selector.Matches(labels.Set(pod.Labels)) {
			count++
		}
	}
	return count
}
