package podtransitionrule

import (
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/policy"
)

// wording remembers the words of one rule for what most pods wait for, so that a round
// finds new ones only for what has changed.
type wording struct {
	mismatches map[types.UID]mismatch

	// noRoom are the words for room, which are the same for every pod.
	room   *policy.Room
	noRoom string
}

// mismatch are the words for a pod whose labels do not match, as it was.
type mismatch struct {
	pod   *policy.PodFact
	words string
}

func newWording() *wording { return &wording{mismatches: map[types.UID]mismatch{}} }

// of explains a code, as policy.Explain does.
func (w *wording) of(code policy.Code, rule appsv1alpha1.TransitionRule, request policy.Request, room *policy.Room) string {
	switch code {
	case policy.CodeNoRoom:
		if room == nil || w.room != room {
			w.room, w.noRoom = room, policy.Explain(code, rule, request, room)
		}
		return w.noRoom
	case policy.CodeLabelMismatch:
		known, ok := w.mismatches[request.Pod.UID]
		if !ok || known.pod != request.Pod {
			known = mismatch{pod: request.Pod, words: policy.Explain(code, rule, request, room)}
			w.mismatches[request.Pod.UID] = known
		}
		return known.words
	default:
		return policy.Explain(code, rule, request, room)
	}
}

// keep drops what is remembered of pods that do not wait any more, when it is about as much
// as what is remembered of those that do.
func (w *wording) keep(requests []policy.Request) {
	const few = 16
	if len(w.mismatches) <= few+2*len(requests) {
		return
	}
	kept := make(map[types.UID]mismatch, len(requests))
	for _, request := range requests {
		if known, ok := w.mismatches[request.Pod.UID]; ok {
			kept[request.Pod.UID] = known
		}
	}
	w.mismatches = kept
}
