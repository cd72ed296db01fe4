package evaluation

import (
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/rule"
)

// messageCache remembers the messages of one rule by verdict, so that a round renders only messages of
// verdicts that have changed.
type messageCache struct {
	mismatches map[types.UID]mismatch

	// text is the number of bytes of the messages of mismatches.
	text int64

	// noRoom is the message of a capacity, which is the same for every pod.
	capacity *rule.Capacity
	noRoom   string
}

// mismatch is the message for a version of a pod whose labels do not match.
type mismatch struct {
	pod     *rule.PodFact
	message string
}

func newMessageCache() *messageCache { return &messageCache{mismatches: map[types.UID]mismatch{}} }

// explain explains a code, as rule.Explain does.
func (c *messageCache) explain(code rule.Code, entry appsv1alpha1.TransitionRule, request rule.Request, capacity *rule.Capacity) string {
	switch code {
	case rule.CodeNoRoom:
		if capacity == nil || c.capacity != capacity {
			c.capacity, c.noRoom = capacity, rule.Explain(code, entry, request, capacity)
		}
		return c.noRoom
	case rule.CodeLabelMismatch:
		known, ok := c.mismatches[request.Pod.UID]
		if !ok || known.pod != request.Pod {
			known = mismatch{pod: request.Pod, message: rule.Explain(code, entry, request, capacity)}
			c.text += int64(len(known.message) - len(c.mismatches[request.Pod.UID].message))
			c.mismatches[request.Pod.UID] = known
		}
		return known.message
	default:
		return rule.Explain(code, entry, request, capacity)
	}
}

// keep drops the messages of pods that do not wait any more, when they are about as many as the
// messages of waiting pods.
func (c *messageCache) keep(requests []rule.Request) {
	const few = 16
	if len(c.mismatches) <= few+2*len(requests) {
		return
	}
	kept, text := make(map[types.UID]mismatch, len(requests)), int64(0)
	for _, request := range requests {
		if known, ok := c.mismatches[request.Pod.UID]; ok {
			if _, twice := kept[request.Pod.UID]; !twice {
				text += int64(len(known.message))
			}
			kept[request.Pod.UID] = known
		}
	}
	c.mismatches, c.text = kept, text
}

// bytes is the approximate size of the messages.
func (c *messageCache) bytes() int64 {
	return c.text + int64(len(c.mismatches)*mismatchBytes+len(c.noRoom))
}
