package plan

// State is what a provider confirms about the traffic of one pod.
type State int

const (
	// Unconfirmed: a change is under way, failed, or cannot be judged. It opens no door.
	Unconfirmed State = iota

	// On: everything expected of the pod is there, as expected, and takes traffic.
	On

	// Off: nothing of the pod is there, or what is there is as expected and takes none.
	Off
)

// Traffic is what a provider confirms about all pods of an employer.
type Traffic struct {
	states       map[string]State
	unattributed bool
}

// Of returns the state of a pod. A pod of which nothing is known is Off, unless the
// provider has something that may be anybody's.
func (t Traffic) Of(name string) State {
	if state, known := t.states[name]; known {
		return state
	}
	if t.unattributed || t.states == nil {
		return Unconfirmed
	}
	return Off
}

// TrafficOf reads the states from a comparison with what the provider has now. The zero
// Traffic, for a provider that did not answer, confirms nothing.
func TrafficOf[T any](diff Diff[T]) Traffic {
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

// missing: an item that is not there and should not take traffic takes none. One that
// should may come at any moment.
func missing(intent Intent) State {
	if intent == IntentOff {
		return Off
	}
	return Unconfirmed
}

// vote adds what one item says. Items of one pod that differ leave it unconfirmed.
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
