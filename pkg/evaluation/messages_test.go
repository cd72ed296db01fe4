package evaluation

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/rule"
)

func worded(uid, tier string) rule.Request {
	return rule.Request{Pod: &rule.PodFact{UID: types.UID(uid), Name: uid, Labels: map[string]string{"tier": tier}}}
}

// Pods are added, changed and removed in any way: their messages equal newly made messages.
func TestWordsAreThoseOfToday(t *testing.T) {
	most := intstr.FromInt32(1)
	entry := appsv1alpha1.TransitionRule{
		LabelCheck:      &appsv1alpha1.LabelCheck{Requires: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "backend"}}},
		AvailablePolicy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: &most},
	}
	rapid.Check(t, func(t *rapid.T) {
		w := newMessageCache()
		requests := map[string]rule.Request{}
		room := &rule.Capacity{Selected: 3, Desired: 3, MaxUnavailable: 1, MinAvailable: -1}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			uid := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "pod")
			if _, ok := requests[uid]; !ok || rapid.Bool().Draw(t, "changes") {
				requests[uid] = worded(uid, rapid.SampledFrom([]string{"frontend", "cache"}).Draw(t, "tier"))
			}
			if rapid.Bool().Draw(t, "room changes") {
				room = &rule.Capacity{Selected: 3, Desired: 3, MaxUnavailable: 1, MinAvailable: -1, Available: rapid.IntRange(1, 2).Draw(t, "available")}
			}
			code := rapid.SampledFrom([]rule.Code{rule.CodeNoRoom, rule.CodeLabelMismatch, rule.CodeUndefined}).Draw(t, "code")
			got, want := w.explain(code, entry, requests[uid], room), rule.Explain(code, entry, requests[uid], room)
			if got != want {
				t.Fatalf("of %s: got %q, want %q", uid, got, want)
			}
		}
	})
}

func TestWordsAreForgotten(t *testing.T) {
	w := newMessageCache()
	for i := range 1000 {
		request := worded(fmt.Sprint(i), "frontend")
		w.explain(rule.CodeLabelMismatch, appsv1alpha1.TransitionRule{}, request, nil)
		w.keep([]rule.Request{request})
	}
	if got := len(w.mismatches); got > 20 {
		t.Errorf("words for %d pods are remembered, and one waits", got)
	}
}
