package resourceconsist

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/core/lifecycle"
)

// keptPoll is how often pods are read whose items are kept: no watch of controlled pods reports them.
const keptPoll = 10 * time.Second

// gatherUnexpected reads the pods whose items are to be deleted although they may serve: the Service selects them, and they are Ready.
// Items of pods without the control label are kept: PodOps does not take their traffic off, and a cache that holds controlled pods
// only does not show them to the adapter.
func (r *Reconciler) gatherUnexpected(ctx context.Context, s *session) error {
	service, isService := s.employer.(*corev1.Service)
	if !isService || s.deleting || len(service.Spec.Selector) == 0 {
		return nil
	}
	unexpected := s.unexpected(service)
	if len(unexpected) == 0 {
		return nil
	}
	var selected corev1.PodList
	err := r.apiReader.List(ctx, &selected, client.InNamespace(s.key.Namespace), client.MatchingLabels(service.Spec.Selector))
	if err != nil {
		return fmt.Errorf("listing the pods of an employer: %w", err)
	}
	for i := range selected.Items {
		pod := &selected.Items[i]
		if !unexpected[pod.Name] {
			continue
		}
		s.pods[pod.Name] = pod
		if serves(service, pod) && !lifecycle.NewPodFacts(pod).Controlled() {
			s.kept[pod.Name] = true
		}
	}
	return nil
}

// unexpected returns the names of pods that may serve, as far as they are known, and whose items are to be deleted.
func (s *session) unexpected(service *corev1.Service) map[string]bool {
	unexpected := map[string]bool{}
	if s.expectedEmployees == nil || s.currentEmployees == nil {
		return unexpected
	}
	for _, item := range *s.currentEmployees {
		if pod := s.pods[item.Name]; item.Name != "" && (pod == nil || serves(service, pod)) {
			unexpected[item.Name] = true
		}
	}
	for _, item := range *s.expectedEmployees {
		delete(unexpected, item.Name)
	}
	return unexpected
}

// serves reports whether a Service selects a pod, whose traffic should be on.
func serves(service *corev1.Service, pod *corev1.Pod) bool {
	return selects(service, pod) && lifecycle.NewPodFacts(pod).ExpectsTraffic()
}
