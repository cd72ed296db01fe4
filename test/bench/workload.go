package main

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/builders"
)

const (
	namespace = "default"
	object    = "web"
	operation = "roll"
)

// workload is a set of pods of which some wait. Every implementation gets the same pods and
// the same events.
type workload struct {
	rules []appsv1alpha1.TransitionRule
	pods  []*corev1.Pod

	// waiting holds the indexes of the pods that wait.
	waiting []int

	// version is the last resourceVersion.
	version int
}

// newWorkload creates pods, of which the given number waits: spread evenly, the last pod
// first, one a millisecond. One pod in twenty is not available.
func newWorkload(rules []appsv1alpha1.TransitionRule, pods, waiting int) *workload {
	f := &workload{rules: rules}
	step := pods / waiting
	for i := range pods {
		b := builders.MakePod(fmt.Sprintf("web-%05d", i)).
			Label("app", "web").Label("tier", "backend").Label("zone", string(rune('a'+i%3))).
			Label("pod-template-hash", "7d4b9c").Label("team", "shop").Label("version", "v1").
			Label("critical", strconv.FormatBool(i%2 == 0)).Label("approved", strconv.FormatBool(i%4 != 0)).
			Node(fmt.Sprintf("node-%d", i%50))
		if i%20 == 7 {
			b.Unready(builders.Epoch)
		} else {
			b.Available()
		}
		if i%step == 0 && len(f.waiting) < waiting {
			b.Waiting(operation, "update", builders.Epoch.Add(time.Duration(pods-i)*time.Millisecond))
			f.waiting = append(f.waiting, i)
		}
		pod := b.Obj()
		pod.Labels["build"] = "b" + strconv.Itoa(i)
		f.pods = append(f.pods, f.stored(pod))
	}
	return f
}

// stored sets the next resourceVersion of a pod.
func (f *workload) stored(pod *corev1.Pod) *corev1.Pod {
	f.version++
	pod.ResourceVersion = strconv.Itoa(f.version)
	return pod
}

// event changes two labels of a waiting pod that rules read: a label with two values, and a
// label whose value no other pod has.
func (f *workload) event(n int) *corev1.Pod {
	at := f.waiting[n%len(f.waiting)]
	pod := *f.pods[at]
	pod.Labels = maps.Clone(pod.Labels)
	pod.Labels["approved"] = strconv.FormatBool(pod.Labels["approved"] != "true")
	pod.Labels["build"] = "b" + strconv.Itoa(f.version)
	f.pods[at] = f.stored(&pod)
	return f.pods[at]
}

// events returns changes of different pods in turn.
func (f *workload) events(first, count int) []*corev1.Pod {
	made := make([]*corev1.Pod, 0, count)
	for n := range count {
		made = append(made, f.event(first+n))
	}
	return made
}

// usualRules returns the rules that all implementations evaluate: an availablePolicy with
// both bounds, a labelCheck, and a rule with a filter and conditions.
func usualRules() []appsv1alpha1.TransitionRule {
	most, least := intstr.FromString("25%"), intstr.FromString("50%")
	return []appsv1alpha1.TransitionRule{
		{
			Name: "placement", Stage: appsv1alpha1.StagePreCheck,
			LabelCheck: &appsv1alpha1.LabelCheck{Requires: &metav1.LabelSelector{
				MatchLabels: map[string]string{"tier": "backend"},
				MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: "zone", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}},
					{Key: "deprecated", Operator: metav1.LabelSelectorOpDoesNotExist},
				},
			}},
		},
		{
			Name: "approval", Stage: appsv1alpha1.StagePreCheck,
			Conditions: []string{"update"},
			Filter: &appsv1alpha1.TransitionRuleFilter{LabelSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"critical": "true"},
			}},
			LabelCheck: &appsv1alpha1.LabelCheck{Requires: &metav1.LabelSelector{
				MatchLabels: map[string]string{"approved": "true"},
			}},
		},
		{
			Name: "budget", Stage: appsv1alpha1.StagePreCheck,
			AvailablePolicy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: &most, MinAvailableValue: &least},
		},
	}
}

// distinctRules returns the same rules, each of which also reads a label whose value
// differs between all pods. No two pods are equal for them.
func distinctRules() []appsv1alpha1.TransitionRule {
	rules := usualRules()
	for i := range rules {
		if rules[i].Filter == nil {
			rules[i].Filter = &appsv1alpha1.TransitionRuleFilter{LabelSelector: &metav1.LabelSelector{}}
		}
		selector := rules[i].Filter.LabelSelector
		selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: "build", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"none"},
		})
	}
	return rules
}

// podTransitionRule holds the rules of the workload and selects all of its pods.
func (f *workload) podTransitionRule() *appsv1alpha1.PodTransitionRule {
	return &appsv1alpha1.PodTransitionRule{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: object, UID: "rule-uid", Generation: 1, ResourceVersion: "1",
		},
		Spec: appsv1alpha1.PodTransitionRuleSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Rules:    f.rules,
		},
	}
}
