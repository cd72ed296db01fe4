package podfacts

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/podstate"
)

// Services reports whether a Service selects a pod. An adapter of the Service changes nothing: its finalizer reports the load balancer, and
// clients also use the cluster IP. It reads only when that decides how long the pod settles: a pod that prepares, is unready, and that no
// finalizer protects any more.
func (e *Employers) Services(ctx context.Context, pod *corev1.Pod, facts lifecycle.PodFacts) (lifecycle.Services, error) {
	if !facts.Preparing() || facts.Ready || facts.Protected() || facts.SettleTime != nil {
		return lifecycle.ServicesUnknown, nil
	}
	var list corev1.ServiceList
	if err := e.cached.List(ctx, &list, client.InNamespace(pod.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return lifecycle.ServicesUnknown, fmt.Errorf("listing the Services of namespace %s: %w", pod.Namespace, err)
	}
	for i := range list.Items {
		if podstate.Selects(&list.Items[i], pod) {
			return lifecycle.ServicesSome, nil
		}
	}
	return lifecycle.ServicesNone, nil
}
