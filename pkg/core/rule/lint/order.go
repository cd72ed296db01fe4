package lint

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Order returns a finding for each rule that can withhold a pod of a StatefulSet for what the pod is, not for the number of pods. The
// controller of a StatefulSet replaces pods by their ordinals, the highest first, and requests no other pod while one is withheld: with a
// leader that goes last, a rollout stops at the leader. sets are in the namespace of the PodTransitionRule.
func Order(object *appsv1alpha1.PodTransitionRule, sets []*appsv1.StatefulSet) []Finding {
	var found []Finding
	for i := range object.Spec.Rules {
		entry := &object.Spec.Rules[i]
		if entry.Disabled || entry.AvailablePolicy != nil || entry.Stage == appsv1alpha1.StagePostCheck ||
			entry.Enforcement != "" && entry.Enforcement != appsv1alpha1.EnforcementEnforce {
			continue
		}
		for _, set := range sets {
			if !isOrdered(set) || !selects(object.Spec.Selector, set) || entry.Filter != nil && !selects(entry.Filter.LabelSelector, set) {
				continue
			}
			found = append(found, Finding{FixedOrder, fmt.Sprintf("spec.rules[%d]", i), fmt.Sprintf(
				"StatefulSet %s replaces its pods by their ordinals, the highest first: while the rule withholds one, no lower pod is replaced", set.Name)})
			break
		}
	}
	return found
}

// isOrdered reports whether a rolling update of a StatefulSet replaces more than one pod.
func isOrdered(set *appsv1.StatefulSet) bool {
	return set.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType && (set.Spec.Replicas != nil && *set.Spec.Replicas > 1) &&
		appsv1alpha1.IsControlled(set.Spec.Template.Labels)
}

// selects reports whether a selector, nil for every pod, selects the pods of a StatefulSet.
func selects(selector *metav1.LabelSelector, set *appsv1.StatefulSet) bool {
	if selector == nil {
		return true
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && parsed.Matches(labels.Set(set.Spec.Template.Labels))
}
