package podfacts

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/lifecycle"
	"github.com/podops-dev/podops/pkg/observation"
)

// aspectReadiness is the observed aspect of pods.
const aspectReadiness = "readiness"

// Gatherer gathers the facts of pods. The controllers that advance pods share it, so that they
// measure the same waits. It is safe for concurrent use.
type Gatherer struct {
	*Employers

	observations *observation.Tracker
}

// New returns a Gatherer that reads Services from a cache, and from the API server where a stale
// cache would matter.
func New(cached, apiReader client.Reader, clk clock.Clock) *Gatherer {
	return &Gatherer{Employers: NewEmployers(cached, apiReader, clk), observations: observation.NewTracker(clk)}
}

// Gather returns the facts of a pod. With an error the unreadable facts are missing, which holds
// the pod back and never advances it.
func (g *Gatherer) Gather(ctx context.Context, pod *corev1.Pod) (facts lifecycle.PodFacts, err error) {
	facts = lifecycle.FactsOf(pod)
	g.observe(pod, &facts)
	var employersErr, servicesErr error
	facts.Gone, employersErr = g.Gone(ctx, pod, facts)
	facts.Services, servicesErr = g.services(ctx, pod, facts)
	return facts, errors.Join(employersErr, servicesErr)
}

// observe measures how long the pod has had its readiness. Pods at rest and terminating pods are
// not kept.
func (g *Gatherer) observe(pod *corev1.Pod, facts *lifecycle.PodFacts) {
	readiness := facts.Readiness()
	if readiness == lifecycle.ReadinessAtRest || facts.Terminating {
		g.observations.Forget(pod.UID, aspectReadiness)
		return
	}
	facts.SteadyFor = g.observations.Observe(pod.UID, aspectReadiness, string(readiness))
}
