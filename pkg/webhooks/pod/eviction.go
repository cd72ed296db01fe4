package pod

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/deferreddelete"
	"github.com/podops-dev/podops/pkg/webhooks/clientauth"
	"github.com/podops-dev/podops/pkg/webhooks/review"
)

// EvictionDeferrer is the validating webhook of evictions. An eviction does not pass the admission
// of DELETE, and its review does not contain the pod.
type EvictionDeferrer struct{ reviewer }

// NewEvictionDeferrer returns the webhook of evictions; arguments as for NewDeleteDeferrer.
func NewEvictionDeferrer(
	decoder admission.Decoder, reader, apiReader client.Reader, deferrer Deferrer, waits *Waits, options DeferOptions, reviews *prometheus.CounterVec,
) *EvictionDeferrer {
	return &EvictionDeferrer{reviewer{
		decoder: decoder, reader: reader, apiReader: apiReader, deferrer: deferrer, waits: waits, options: options, reviews: reviews,
	}}
}

// Handle lets an eviction pass or defers it. Evictions of pods that are not controlled pass. A dry run of
// kubectl drain shows only in the options of the Eviction.
func (d *EvictionDeferrer) Handle(ctx context.Context, req admission.Request) admission.Response {
	eviction := &policyv1.Eviction{} // policy/v1beta1 has the same fields
	if err := json.Unmarshal(req.Object.Raw, eviction); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding eviction: %w", err))
	}
	pod, err := d.evicted(ctx, types.NamespacedName{Namespace: req.Namespace, Name: req.Name})
	if err != nil {
		return review.TooManyRequests("PodOps cannot read the pod: try again")
	}
	if pod == nil {
		return admission.Allowed("")
	}
	var options metav1.DeleteOptions
	if eviction.DeleteOptions != nil {
		options = *eviction.DeleteOptions
	}
	return d.answer(ctx, req, pod, deferreddelete.MethodEviction, options)
}

// evicted returns the pod of an eviction, nil if it does not exist or is not controlled. The cache has
// controlled pods only, and may be behind: a pod that it does not have is read from the API server, unless
// anyone may have sent the review.
func (d *EvictionDeferrer) evicted(ctx context.Context, key types.NamespacedName) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if d.reader.Get(ctx, key, pod) == nil {
		return pod, nil
	}
	if !clientauth.Verified(ctx) {
		return nil, nil
	}
	if err := d.apiReader.Get(ctx, key, pod); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if !appsv1alpha1.IsControlled(pod.Labels) {
		return nil, nil
	}
	return pod, nil
}

// budgets returns how many PodDisruptionBudgets select the pod; 0 if the cache cannot be read.
func (d *reviewer) budgets(ctx context.Context, pod *corev1.Pod) int {
	list := &policyv1.PodDisruptionBudgetList{}
	if err := d.reader.List(ctx, list, client.InNamespace(pod.Namespace)); err != nil {
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
