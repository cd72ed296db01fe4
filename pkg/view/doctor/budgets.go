package doctor

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/podops-dev/podops/pkg/runtime/text"
)

const kindBudget = "pdb"

func budgetChecks() []check {
	return []check{
		{id: "pdb-permits-nothing", reads: []Source{SourceBudgets, SourcePods, SourceWorkloads}, find: (*inspection).budgetPermitsNothing},
		{id: "pdb-several", reads: []Source{SourceBudgets, SourcePods}, find: (*inspection).budgetSeveral},
	}
}

// budgetPermitsNothing finds PodDisruptionBudgets that hold back available controlled pods for ever, even if all rules
// permit them.
func (in *inspection) budgetPermitsNothing() []Finding {
	var findings []Finding
	for i := range in.Budgets {
		budget := &in.Budgets[i]
		selected := in.selected(budget.Namespace, budget.Spec.Selector)
		words := permitsNothing(budget)
		if words == "" || len(selected) == 0 {
			continue
		}
		level, consequence := LevelError, "no available one is ever permitted"
		if in.maySurge(budget.Namespace, budget.Spec.Selector) {
			level, consequence = LevelWarning, withSurge
		}
		findings = append(findings, Finding{
			Level: level, Object: object(kindBudget, budget.Namespace, budget.Name), Remedy: edit(kindBudget, budget.Namespace, budget.Name),
			Text: fmt.Sprintf("%s, and selects %d pods under PodOps: %s", words, len(selected), consequence),
		})
	}
	return findings
}

// permitsNothing returns why a PodDisruptionBudget permits no disruption even if every pod is healthy.
func permitsNothing(budget *policyv1.PodDisruptionBudget) string {
	if bound := budget.Spec.MaxUnavailable; bound != nil && (bound.String() == "0" || bound.String() == "0%") {
		return "has maxUnavailable " + bound.String()
	}
	bound := budget.Spec.MinAvailable
	switch {
	case bound == nil:
		return ""
	case bound.String() == "100%":
		return "has minAvailable 100%"
	case budget.Status.ExpectedPods > 0 && budget.Status.DesiredHealthy >= budget.Status.ExpectedPods:
		return fmt.Sprintf("has minAvailable %s with %s", bound.String(), text.Count(int(budget.Status.ExpectedPods), "pod"))
	default:
		return ""
	}
}

// budgetSeveral finds pods that the eviction API refuses to evict.
func (in *inspection) budgetSeveral() []Finding {
	return in.perOwner(func(pod *corev1.Pod) *Finding {
		var names []string
		for _, budget := range in.Budgets {
			if budget.Namespace == pod.Namespace && budget.Spec.Selector != nil && matches(budget.Spec.Selector, pod.Labels) {
				names = append(names, budget.Name)
			}
		}
		if len(names) < 2 {
			return nil
		}
		slices.Sort(names)
		return &Finding{
			Level: LevelWarning, Remedy: edit(kindBudget, pod.Namespace, names[len(names)-1]) + ", so that its selector leaves out these pods",
			Text: fmt.Sprintf("the PodDisruptionBudgets %s select it: the eviction API refuses pods that several of them select", strings.Join(names, ", ")),
		}
	})
}
