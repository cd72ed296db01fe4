package facts

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/lifecycle"
	"github.com/podops-dev/podops/pkg/policy"
)

// pod is one entry of the index.
type pod struct {
	fact *policy.PodFact

	// counts: the pod is part of the selected pods. Terminating and finished ones are
	// not.
	counts bool

	// owner is the UID of the controller of the pod; empty when it has none.
	owner types.UID

	requests []policy.Request

	// object is kept only while requests wait, for the write that answers them.
	object *corev1.Pod
}

func newPod(object *corev1.Pod, before *pod) *pod {
	facts := lifecycle.FactsOf(object)
	p := &pod{
		fact: &policy.PodFact{
			UID:             object.UID,
			Namespace:       object.Namespace,
			Name:            object.Name,
			ResourceVersion: object.ResourceVersion,
			Version:         object.ResourceVersion,
			Labels:          object.Labels,
			SkipRules:       skipRules(object.Annotations),
			Available:       Available(object),
		},
		counts: !facts.Terminating && !isFinished(object),
	}
	if controller := metav1.GetControllerOf(object); controller != nil {
		p.owner = controller.UID
	}
	if before != nil && sameToRules(before.fact, p.fact) {
		p.fact.Version = before.fact.Version
	}
	for _, w := range lifecycle.WaitingIDs(facts) {
		since, _ := lifecycle.ParseTime(w.Generation)
		p.requests = append(p.requests, policy.Request{
			Pod: p.fact, Stage: w.Stage, ID: w.ID, Type: w.Type, Generation: w.Generation, Since: since,
		})
	}
	if len(p.requests) > 0 {
		p.object = object
	}
	return p
}

// Available reports whether a pod counts as available (design section 4):
//   - PodOps said so with service-available,
//   - it is Ready,
//   - it is neither terminating nor finished.
func Available(object *corev1.Pod) bool {
	_, marked := object.Labels[appsv1alpha1.ServiceAvailableLabelKey]
	return marked && lifecycle.FactsOf(object).Ready && object.DeletionTimestamp == nil && !isFinished(object)
}

func isFinished(object *corev1.Pod) bool {
	return object.Status.Phase == corev1.PodFailed || object.Status.Phase == corev1.PodSucceeded
}

// skipRules reads the names of the rules that a pod skips. What cannot be read skips
// nothing.
func skipRules(annotations map[string]string) []string {
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

func sameToRules(a, b *policy.PodFact) bool {
	return a.Name == b.Name && a.Namespace == b.Namespace && a.Available == b.Available &&
		maps.Equal(a.Labels, b.Labels) && slices.Equal(a.SkipRules, b.SkipRules)
}

// sameToDecisions reports whether a change of the pod can change no decision and no
// status.
func sameToDecisions(a, b *pod) bool {
	return a.fact.Version == b.fact.Version && a.counts == b.counts && a.owner == b.owner && sameRequests(a.requests, b.requests)
}

func sameRequests(a, b []policy.Request) bool {
	return slices.EqualFunc(a, b, func(x, y policy.Request) bool {
		return x.ID == y.ID && x.Stage == y.Stage && x.Type == y.Type && x.Generation == y.Generation &&
			x.Pod.ResourceVersion == y.Pod.ResourceVersion
	})
}
