package evaluation

import (
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/rule"
)

// wording remembers the messages of one rule by verdict, so that a round renders only messages of
// verdicts that have changed.
type messageCache struct {
	mismatches map[types.UID]mismatch

	// text is how many bytes the words of mismatches have.
	text int64

	// noRoom are the words for room, which are the same for every pod.
	room   *rule.Capacity
	noRoom string
}

// mismatch are the words for a pod whose labels do not match, as it was.
type mismatch struct {
	pod   *rule.PodFact
	words string
}

func newMessageCache() *messageCache { return &messageCache{mismatches: map[types.UID]mismatch{}} }

// of explains a code, as rule.Explain does.
func (w *messageCache) of(code rule.Code, entry appsv1alpha1.TransitionRule, request rule.Request, room *rule.Capacity) string {
	switch code {
	case rule.CodeNoRoom:
		if room == nil || w.room != room {
			w.room, w.noRoom = room, rule.Explain(code, entry, request, room)
		}
		return w.noRoom
	case rule.CodeLabelMismatch:
		known, ok := w.mismatches[request.Pod.UID]
		if !ok || known.pod != request.Pod {
			known = mismatch{pod: request.Pod, words: rule.Explain(code, entry, request, room)}
			w.text += int64(len(known.words) - len(w.mismatches[request.Pod.UID].words))
			w.mismatches[request.Pod.UID] = known
		}
		return known.words
	default:
		return rule.Explain(code, entry, request, room)
	}
}

// keep drops the messages of pods that do not wait any more, when they are about as many as the
// messages of waiting pods.
func (w *messageCache) keep(requests []rule.Request) {
	const few = 16
	if len(w.mismatches) <= few+2*len(requests) {
		return
	}
	kept, text := make(map[types.UID]mismatch, len(requests)), int64(0)
	for _, request := range requests {
		if known, ok := w.mismatches[request.Pod.UID]; ok {
			if _, twice := kept[request.Pod.UID]; !twice {
				text += int64(len(known.words))
			}
			kept[request.Pod.UID] = known
		}
	}
	w.mismatches, w.text = kept, text
}

// bytes is the approximate size of the messages.
func (w *messageCache) bytes() int64 {
	return w.text + int64(len(w.mismatches)*mismatchBytes+len(w.noRoom))
}
