package main

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
)

// ruling is the result of one waiting pod in one round.
type ruling struct {
	pod types.UID

	// granted, or else without a slot, or else withheld by the rules of the mask: bit i is
	// rule i.
	granted  bool
	short    bool
	withheld uint
}

// counts of the selected pods.
type counts struct{ selected, available int }

// plainRule is a rule prepared for evaluation in Go.
type plainRule struct {
	name       string
	conditions []string
	filter     labels.Selector
	requires   labels.Selector // nil for an availablePolicy
	most       *intstr.IntOrString
	least      *intstr.IntOrString
}

// plainRules parses the rules, as the predecessor does for every event.
func plainRules(rules []appsv1alpha1.TransitionRule) []plainRule {
	parsed := make([]plainRule, 0, len(rules))
	for _, rule := range rules {
		one := plainRule{name: rule.Name, conditions: rule.Conditions, filter: labels.Everything()}
		if rule.Filter != nil {
			one.filter = selectorOf(rule.Filter.LabelSelector)
		}
		if rule.LabelCheck != nil {
			one.requires = selectorOf(rule.LabelCheck.Requires)
		}
		if rule.AvailablePolicy != nil {
			one.most, one.least = rule.AvailablePolicy.MaxUnavailableValue, rule.AvailablePolicy.MinAvailableValue
		}
		parsed = append(parsed, one)
	}
	return parsed
}

func selectorOf(selector *metav1.LabelSelector) labels.Selector {
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		panic(err) // the rules of the benchmark are valid
	}
	return parsed
}

// slots returns the free slots of an availablePolicy.
func (r plainRule) slots(c counts) int {
	spare := math.MaxInt
	if r.most != nil {
		spare = min(spare, max(1, scaled(r.most, c.selected, false))-(c.selected-c.available))
	}
	if r.least != nil {
		spare = min(spare, c.available-scaled(r.least, c.selected, true))
	}
	return max(0, spare)
}

func scaled(bound *intstr.IntOrString, total int, up bool) int {
	value, err := intstr.GetScaledValueFromIntOrPercent(bound, total, up)
	if err != nil {
		panic(err) // the rules of the benchmark are valid
	}
	return value
}

// candidate is a pod that waits.
type candidate struct {
	uid       types.UID
	name      string
	since     time.Time
	kind      string
	labels    labels.Set
	skip      []string
	available bool
}

// evaluate returns the verdict of the rule for a candidate: it is withheld, or it needs a slot.
func (r plainRule) evaluate(c candidate) (withheld, slot bool) {
	applies := !slices.Contains(c.skip, r.name) &&
		(len(r.conditions) == 0 || slices.Contains(r.conditions, c.kind)) && r.filter.Matches(c.labels)
	switch {
	case !applies:
		return false, false
	case r.requires != nil:
		return !r.requires.Matches(c.labels), false
	default:
		return false, c.available
	}
}

// decide evaluates the sorted candidates. go-scan and go-incr do nothing else once they
// have them.
func decide(rules []plainRule, candidates []candidate, c counts) []ruling {
	left := 0
	for _, rule := range rules {
		if rule.requires == nil {
			left = rule.slots(c)
		}
	}
	rulings := make([]ruling, 0, len(candidates))
	for _, one := range candidates {
		r, needs := ruling{pod: one.uid}, false
		for i, rule := range rules {
			withheld, slot := rule.evaluate(one)
			if withheld {
				r.withheld |= 1 << i
			}
			needs = needs || slot
		}
		rulings = append(rulings, allocate(r, needs, &left))
	}
	return rulings
}

// allocate sets a ruling. All implementations share it.
func allocate(r ruling, needs bool, left *int) ruling {
	switch {
	case r.withheld != 0:
	case !needs:
		r.granted = true
	case *left > 0:
		*left--
		r.granted = true
	default:
		r.short = true
	}
	return r
}

// candidateOf reads a pod. ok is false when it does not wait.
func candidateOf(pod *corev1.Pod) (found candidate, ok bool) {
	for key, value := range pod.Labels {
		id, waits := strings.CutPrefix(key, appsv1alpha1.PreCheckLabelPrefix+"/")
		if !waits {
			continue
		}
		since, _ := lifecycle.ParseTime(value)
		return candidate{
			uid: pod.UID, name: pod.Name, since: since, kind: pod.Labels[appsv1alpha1.OperationTypeLabelPrefix+"/"+id],
			labels: pod.Labels, available: isAvailable(pod),
		}, true
	}
	return candidate{}, false
}

func isAvailable(pod *corev1.Pod) bool {
	if _, serves := pod.Labels[appsv1alpha1.ServiceAvailableLabelKey]; !serves {
		return false
	}
	for i := range pod.Status.Conditions {
		if condition := &pod.Status.Conditions[i]; condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// isThere reports whether the pod counts at all.
func isThere(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded
}

func inOrder(a, b candidate) int {
	return cmp.Or(a.since.Compare(b.since), strings.Compare(a.name, b.name))
}
