package podstate

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

// Available reports whether a pod counts as available:
//   - it has the label service-available,
//   - it is Ready,
//   - it is neither terminating nor finished.
func Available(pod *corev1.Pod) bool { return AvailableBy(pod, lifecycle.NewPodFacts(pod)) }

// AvailableBy is Available for a caller that has the facts of the pod.
func AvailableBy(pod *corev1.Pod, facts lifecycle.PodFacts) bool {
	_, marked := pod.Labels[appsv1alpha1.ServiceAvailableLabelKey]
	return marked && facts.Ready && pod.DeletionTimestamp == nil && !Finished(pod)
}

// Finished reports whether a pod has succeeded or failed: its containers do not start again.
func Finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// SkipRules returns the names of the rules that a pod skips: no names if its annotation is
// not valid.
func SkipRules(annotations map[string]string) []string {
	text := annotations[appsv1alpha1.SkipRulesAnnotationKey]
	if text == "" || len(text) > appsv1alpha1.MaxAnnotationBytes {
		return nil
	}
	var skip appsv1alpha1.SkipRules
	if err := json.Unmarshal([]byte(text), &skip); err != nil {
		return nil
	}
	slices.Sort(skip.SkipRules)
	return slices.Compact(skip.SkipRules)
}

// Freeze returns the freeze in the annotations of a namespace. A freeze whose end cannot be read has no end.
func Freeze(annotations map[string]string) rule.Freeze {
	value := text.Line(annotations[appsv1alpha1.FreezeAnnotationKey], rule.MaxMessageBytes)
	end, message, _ := strings.Cut(value, " ")
	until, err := time.Parse(time.RFC3339, end)
	switch {
	case err == nil:
		return rule.Freeze{Message: cmp.Or(message, "frozen"), Until: until}
	case end == "-":
		return rule.Freeze{Message: cmp.Or(message, "frozen")}
	default:
		return rule.Freeze{Message: value}
	}
}

// BreakGlass returns the reason of a break-glass annotation in one line; empty without the
// annotation.
func BreakGlass(annotations map[string]string) string {
	return text.Line(annotations[appsv1alpha1.BreakGlassAnnotationKey], rule.MaxBreakGlassBytes)
}
