package podfacts

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/runtime/observation"
	"github.com/podops-dev/podops/pkg/state/podindex"
)

// aspectReadiness is the observed aspect of pods.
const aspectReadiness = "readiness"

// Gatherer gathers the facts of pods. The controllers that advance pods share it, so that they
// measure the same waits. It is safe for concurrent use.
type Gatherer struct {
	*Employers

	rules        client.Reader
	drains       *Drains
	observations *observation.Tracker
}

// New returns a Gatherer that reads PodTransitionRules and Services from a cache, and Services from the API server where a stale
// cache would matter.
// Without Drains, a pod with a drain endpoint waits.
func New(cached, apiReader client.Reader, drains *Drains, clk clock.Clock) *Gatherer {
	return &Gatherer{Employers: NewEmployers(cached, apiReader, clk), rules: cached, drains: drains, observations: observation.NewTracker(clk)}
}

// Gather returns the facts of a pod. With an error the unreadable facts are missing, which holds
// the pod back and never advances it.
func (g *Gatherer) Gather(ctx context.Context, pod *corev1.Pod) (facts lifecycle.PodFacts, err error) {
	facts = lifecycle.NewPodFacts(pod)
	g.observe(pod, &facts)
	var employersErr, servicesErr, rulesErr error
	facts.Gone, employersErr = g.Gone(ctx, pod, facts)
	facts.Services, servicesErr = g.Services(ctx, pod, facts)
	facts.HasCreateRules, rulesErr = g.hasCreateRules(ctx, pod, facts)
	err = errors.Join(employersErr, servicesErr, rulesErr)
	if facts.DrainEndpoint.Port != 0 && g.drains != nil {
		g.drains.observe(pod, &facts)
	}
	return facts, err
}

// hasCreateRules returns the fact of this name; true with an error.
func (g *Gatherer) hasCreateRules(ctx context.Context, pod *corev1.Pod, facts lifecycle.PodFacts) (bool, error) {
	if facts.Gate != lifecycle.GateUnset || facts.Terminating || !facts.Controlled() {
		return false, nil
	}
	var rules appsv1alpha1.PodTransitionRuleList
	if err := g.rules.List(ctx, &rules, client.InNamespace(pod.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return true, fmt.Errorf("listing PodTransitionRules: %w", err)
	}
	return slices.ContainsFunc(rules.Items, func(r appsv1alpha1.PodTransitionRule) bool { return podindex.ChecksCreation(&r, pod) }), nil
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
