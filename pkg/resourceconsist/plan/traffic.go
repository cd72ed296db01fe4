package plan

// State is the traffic state of one pod that a provider confirms.
type State int

const (
	// Unconfirmed means that a change is in progress, failed, or cannot be compared. No
	// finalizer changes on it.
	Unconfirmed State = iota

	// On means that everything expected of the pod is there, as expected, and takes
	// traffic.
	On

	// Off means that nothing of the pod is there, or that it is there as expected and takes
	// no traffic.
	Off
)

// Traffic is the traffic state of an employer's pods.
type Traffic struct {
	states       map[string]State
	unattributed bool
}

// Of returns the state of a pod. A pod without items is Off, unless the provider has an
// unattributed item.
func (t Traffic) Of(name string) State {
	if state, known := t.states[name]; known {
		return state
	}
	if t.unattributed || t.states == nil {
		return Unconfirmed
	}
	return Off
}

// ClassifyTraffic derives the states from a comparison with the current items of the provider.
// The zero Traffic, for a provider that did not answer, confirms nothing.
func ClassifyTraffic[T any](diff Diff[T]) Traffic {
	t := Traffic{states: map[string]State{}}
	for _, item := range diff.Unchanged {
		t.vote(item.Name, unchanged(item.Intent))
	}
	for _, item := range diff.Create {
		t.vote(item.Name, missing(item.Intent))
	}
	for _, items := range [][]Item[T]{diff.Off, diff.Update, diff.Delete} {
		for _, item := range items {
			t.vote(item.Name, Unconfirmed)
		}
	}
	for _, failure := range diff.Failed {
		t.vote(failure.Item.Name, Unconfirmed)
	}
	return t
}

func unchanged(intent Intent) State {
	if intent == IntentOff {
		return Off
	}
	return On
}

// missing returns the state of an expected item that the provider does not have. If the
// item should take no traffic, its traffic is off; otherwise the item may appear at any
// moment.
func missing(intent Intent) State {
	if intent == IntentOff {
		return Off
	}
	return Unconfirmed
}

// vote adds the state of one item. Items of one pod with different states leave it
// unconfirmed.
func (t *Traffic) vote(name string, state State) {
	if name == "" {
		t.unattributed = t.unattributed || state == Unconfirmed
		return
	}
	before, known := t.states[name]
	if known && before != state {
		state = Unconfirmed
	}
	t.states[name] = state
}
