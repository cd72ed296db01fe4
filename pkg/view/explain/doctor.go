package explain

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podops-dev/podops/pkg/view/clusterstate"
	"github.com/podops-dev/podops/pkg/view/doctor"
)

// Findings returns what doctor finds in a snapshot. Checks that need other objects do not run.
func Findings(s *clusterstate.Snapshot, now time.Time) []doctor.Finding {
	d := doctor.Snapshot{
		Unread: map[doctor.Source]string{}, Namespaces: []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}}},
		Pods: values(s.Pods), Services: values(s.Services), Deployments: values(s.Deployments), StatefulSets: values(s.StatefulSets),
		DaemonSets: values(s.DaemonSets), Budgets: values(s.Budgets), Rules: values(s.Rules), Operations: values(s.Operations), Shared: values(s.Policies),
	}
	for _, source := range []doctor.Source{
		doctor.SourceVersion, doctor.SourceWebhooks, doctor.SourcePolicies, doctor.SourceGuards, doctor.SourceCRDs, doctor.SourceManager,
		doctor.SourceCertificate, doctor.SourceProbe, doctor.SourceNodes, doctor.SourceAdapters, doctor.SourceRuleSecrets,
	} {
		d.Unread[source] = "not in the snapshot"
	}
	for resource, source := range map[string]doctor.Source{
		"pods": doctor.SourcePods, "services": doctor.SourceServices, "poddisruptionbudgets": doctor.SourceBudgets,
		"podtransitionrules": doctor.SourceRules, "podtransitionpolicies": doctor.SourceShared, "podoperations": doctor.SourceOperations,
		"deployments": doctor.SourceWorkloads, "statefulsets": doctor.SourceWorkloads, "daemonsets": doctor.SourceWorkloads,
	} {
		if s.CannotRead(resource) {
			d.Unread[source] = "it could not be read"
		}
	}
	return doctor.Inspect(d, doctor.Options{}, now).Findings
}

func values[T any](pointers []*T) []T {
	all := make([]T, len(pointers))
	for i, pointer := range pointers {
		all[i] = *pointer
	}
	return all
}

// AddFindings adds to explanations the errors and warnings of doctor about the rules and budgets that select their pods, unless the
// explanation states them.
func AddFindings(s *clusterstate.Snapshot, explanations []Explanation, now time.Time) {
	found := slices.DeleteFunc(Findings(s, now), func(f doctor.Finding) bool { return f.Level == doctor.LevelInfo })
	for i := range explanations {
		e := &explanations[i]
		objects := selecting(s, *e)
		for _, finding := range found {
			if objects[finding.Object] && !e.states(finding.Check) {
				e.Findings = append(e.Findings, finding)
			}
		}
	}
}

// selecting returns the rules and budgets that select the pods of an explained object, as findings name them.
func selecting(s *clusterstate.Snapshot, e Explanation) map[string]bool {
	objects := map[string]bool{}
	if e.Kind == "PodTransitionRule" {
		objects["podtransitionrule "+e.Namespace+"/"+e.Name] = true
	}
	for _, pod := range explainedPods(s, e) {
		for _, object := range s.RulesFor(pod) {
			objects["podtransitionrule "+object.Namespace+"/"+object.Name] = true
		}
		for _, budget := range s.BudgetsFor(pod) {
			objects["pdb "+budget.Namespace+"/"+budget.Name] = true
		}
	}
	return objects
}

// explainedPods returns the pods of an explained pod or workload.
func explainedPods(s *clusterstate.Snapshot, e Explanation) []*corev1.Pod {
	var owner metav1.Object
	switch e.Kind {
	case "Pod":
		if pod := s.Pod(e.Name); pod != nil {
			return []*corev1.Pod{pod}
		}
		return nil
	case "Deployment":
		owner = s.Deployment(e.Name)
	case "ReplicaSet":
		owner = s.ReplicaSet(e.Name)
	case "StatefulSet":
		owner = s.StatefulSet(e.Name)
	case "DaemonSet":
		owner = s.DaemonSet(e.Name)
	default:
		return nil
	}
	return s.PodsOwnedBy(owner.GetUID())
}

// states reports whether an explanation has a reason that states what a check finds.
func (e Explanation) states(check doctor.ID) bool {
	covered := map[doctor.ID][]Situation{
		"rule-never-passes":    {NeverPasses, NeverFinishes, PassesWithSurge},
		"rule-quarantined":     {Quarantined},
		"rule-not-evaluated":   {CompileFailed, BadParameters, TooLarge, PolicyNotFound, EvaluationFailed},
		"rule-selects-nothing": {SelectsNothing, NotControlled},
		"policy-missing":       {PolicyNotFound},
		"webhook-rule-secret":  {WebhookSecret},
		"webhook-rule-service": {WebhookUnresolvable},
		"webhook-rule-failing": {WebhookFailed, WebhookUnresolvable, WebhookCircuitOpen, WebhookSecret},
	}[check]
	return slices.ContainsFunc(slices.Concat(e.Reasons, e.Notes), func(r Reason) bool { return slices.Contains(covered, r.Situation) })
}
