package doctor

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

func guardChecks() []check {
	return []check{{id: "removal-guarded", reads: []Source{SourceGuards}, find: (*inspection).removalGuarded}}
}

// removal is a kind of requests by which pods are removed.
type removal struct {
	text                         string
	group, resource, subresource string
	operation                    admissionregistrationv1.OperationType
}

func removals() []removal {
	return []removal{
		{"deletes of pods", "", "pods", "", admissionregistrationv1.Delete},
		{"evictions", "", "pods", "eviction", admissionregistrationv1.Create},
		{"scales of ReplicaSets", "apps", "replicasets", "scale", admissionregistrationv1.Update},
	}
}

// removalGuarded names webhooks and policies of others that review the removal of pods.
func (in *inspection) removalGuarded() []Finding {
	var findings []Finding
	add := func(object, name, remedy string, rules []admissionregistrationv1.RuleWithOperations) {
		matched := removalOperations(rules)
		if len(matched) == 0 {
			return
		}
		findings = append(findings, Finding{
			Level: LevelInfo, Object: object, Remedy: remedy,
			Text: fmt.Sprintf("%s reviews %s beside PodOps: it may deny a request that rules permit, and a removal that PodOps carries out itself "+
				"(label to-delete, PodOperation, StatefulSet) is a request of the manager there", name, strings.Join(matched, ", ")),
		})
	}
	for _, w := range in.Guards.webhooks() {
		kind, name, _ := strings.Cut(w.configuration, " ")
		remedy := fmt.Sprintf("kubectl get %s %s -o yaml, and compare what it denies with the PodTransitionRules", kind, name)
		add(w.configuration, "webhook "+w.name, remedy, w.fields.rules)
	}
	for i := range in.Guards.Policies {
		policy := &in.Guards.Policies[i]
		if policy.Spec.MatchConstraints == nil || !in.Guards.denies(policy.Name) {
			continue
		}
		var rules []admissionregistrationv1.RuleWithOperations
		for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
			rules = append(rules, rule.RuleWithOperations)
		}
		add(object("validatingadmissionpolicy", "", policy.Name), "the policy",
			fmt.Sprintf("kubectl get validatingadmissionpolicy %s -o yaml, and compare what it denies with the PodTransitionRules", policy.Name), rules)
	}
	return findings
}

// denies reports whether a binding makes a policy deny requests: a policy alone, or a binding that audits, denies none.
func (i Installation) denies(policy string) bool {
	return slices.ContainsFunc(i.Bindings, func(binding admissionregistrationv1.ValidatingAdmissionPolicyBinding) bool {
		return binding.Spec.PolicyName == policy && slices.Contains(binding.Spec.ValidationActions, admissionregistrationv1.Deny)
	})
}

// removalOperations returns the removals that some of the rules match.
func removalOperations(rules []admissionregistrationv1.RuleWithOperations) []string {
	var matched []string
	for _, removal := range removals() {
		if slices.ContainsFunc(rules, removal.isMatched) {
			matched = append(matched, removal.text)
		}
	}
	return matched
}

// isMatched matches as the API server does: a rule names a resource and a subresource, each of which may be *.
func (r removal) isMatched(rule admissionregistrationv1.RuleWithOperations) bool {
	isOr := func(value, want string) bool { return value == want || value == "*" }
	return slices.ContainsFunc(rule.Operations, func(operation admissionregistrationv1.OperationType) bool {
		return isOr(string(operation), string(r.operation))
	}) && slices.ContainsFunc(rule.APIGroups, func(group string) bool { return isOr(group, r.group) }) &&
		slices.ContainsFunc(rule.Resources, func(named string) bool {
			resource, subresource, _ := strings.Cut(named, "/")
			return isOr(resource, r.resource) && isOr(subresource, r.subresource)
		})
}
