package podtransitionrule

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/test/sim"
)

// The oracle defines an availablePolicy in plain Go and from plain pods: it
// shares nothing with the index, the Rego library or the plan.

// tally has the counts of one PodTransitionRule.
type tally struct {
	selector            labels.Selector
	selected, available int

	// owned are the selected pods by the UID of their controller.
	owned map[types.UID]int
}

func newTally(selector labels.Selector) tally {
	return tally{selector: selector, owned: map[types.UID]int{}}
}

// add counts a selected pod that is there.
func (c *tally) add(pod *corev1.Pod, available bool) {
	c.selected++
	if available {
		c.available++
	}
	owner := types.UID("")
	if controller := metav1.GetControllerOf(pod); controller != nil {
		owner = controller.UID
	}
	c.owned[owner]++
}

// desired: the workloads that make pods for the rule count with what they want, all
// other pods one by one.
func (c *tally) desired(owners map[types.UID]podindex.Owner) int {
	desired := c.selected
	for uid, owner := range owners {
		if c.selector.Matches(labels.Set(owner.TemplateLabels)) {
			desired += owner.Desired - c.owned[uid]
		}
	}
	return desired
}

// spare is how many more pods may become unavailable; below zero when too many are.
func (c *tally) spare(policy *appsv1alpha1.AvailablePolicy, owners map[types.UID]podindex.Owner) int {
	desired := c.desired(owners)
	spare := c.available
	if policy.MaxUnavailableValue != nil {
		spare = min(spare, c.available-(desired-atMost(*policy.MaxUnavailableValue, desired)))
	}
	if policy.MinAvailableValue != nil {
		spare = min(spare, c.available-atLeast(*policy.MinAvailableValue, desired))
	}
	return spare
}

func atMost(bound intstr.IntOrString, base int) int {
	if percent, ok := strings.CutSuffix(bound.StrVal, "%"); ok {
		return max(1, mustAtoi(percent)*base/100)
	}
	return bound.IntValue()
}

func atLeast(bound intstr.IntOrString, base int) int {
	if percent, ok := strings.CutSuffix(bound.StrVal, "%"); ok {
		return (mustAtoi(percent)*base + 99) / 100
	}
	return bound.IntValue()
}

func mustAtoi(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

// isServing reports whether the pod counts as available.
func isServing(pod *corev1.Pod) bool {
	_, marked := pod.Labels[appsv1alpha1.ServiceAvailableLabelKey]
	return marked && isThere(pod) && sim.IsTrue(pod, corev1.PodReady)
}

// isThere reports whether the pod counts as one of the selected pods.
func isThere(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded
}

// isSubject reports whether the rule applies to this operation of this pod.
func isSubject(rule appsv1alpha1.TransitionRule, pod *corev1.Pod, operationType string) bool {
	return (len(rule.Conditions) == 0 || slices.Contains(rule.Conditions, operationType)) &&
		(rule.Filter == nil || mustSelector(rule.Filter.LabelSelector).Matches(labels.Set(pod.Labels))) &&
		!strings.Contains(pod.Annotations[appsv1alpha1.SkipRulesAnnotationKey], `"`+rule.Name+`"`)
}

func mustSelector(selector *metav1.LabelSelector) labels.Selector {
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		panic(err)
	}
	return parsed
}

// truth counts the stored objects.
func (w *simulation) truth(selector labels.Selector) tally {
	count := newTally(selector)
	for _, pod := range w.server.pods {
		if isThere(pod) && selector.Matches(labels.Set(pod.Labels)) {
			count.add(pod, isServing(pod))
		}
	}
	return count
}
