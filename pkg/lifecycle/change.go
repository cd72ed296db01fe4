package lifecycle

import (
	"maps"
	"slices"
	"time"
)

// Step is one move of the state machine.
type Step string

// The steps, in the order in which an id takes them.
const (
	StepBegin      Step = "Begin"
	StepPermit     Step = "Permit"
	StepOperate    Step = "Operate"
	StepFinish     Step = "Finish"
	StepPostCheck  Step = "PostCheck"
	StepPostPermit Step = "PostPermit"
	StepAvailable  Step = "Available"
	StepUndo       Step = "Undo"
	StepCancel     Step = "Cancel"
	StepRelease    Step = "Release"
)

// Transition is one step that a Change takes.
type Transition struct {
	Step Step

	// ID of the lifecycle; empty for steps of the whole pod (Available, Release).
	ID string

	// Type of the operation; empty where it is not known any more.
	Type string

	// Rules are names of the rules that passed, for events. Advance leaves them out.
	Rules []string
}

// Change is what has to be written so that every id goes as far as the facts allow.
// The zero value changes nothing.
type Change struct {
	// Set are labels to add or change, Remove the keys to take off (sorted).
	Set    map[string]string
	Remove []string

	// Annotations to set, or to take off where the value is nil. No lifecycle needs
	// one: they explain to people what goes on.
	Annotations map[string]*string

	// Forget are employers to drop from the annotation available-conditions, sorted.
	Forget []string

	// Gate is the status that the condition service-ready has to get; nil leaves it.
	Gate *bool

	// GateReason is the reason that the condition service-ready has to get, empty for none;
	// nil leaves it. A change of the gate takes a reason off.
	GateReason *string

	// GateMessage is the message that the condition service-ready has to get together with
	// GateReason; nil leaves it. A change of the gate sets the usual one.
	GateMessage *string

	// Conditions are to be True on the pod, RemoveConditions the types to take off; sorted by
	// type. A pod in order has neither.
	Conditions       []Condition
	RemoveConditions []string

	// Moves are the steps taken, for events and logs.
	Transitions []Transition

	// Wake is how long to wait before asking again because of time alone. Zero: no
	// need to.
	Wake time.Duration

	// WaitsForKubelet: gate is False and the kubelet has not yet made the pod unready.
	WaitsForKubelet bool
}

// IsEmpty reports whether nothing has to be written.
func (c Change) IsEmpty() bool {
	return len(c.Set) == 0 && len(c.Remove) == 0 && len(c.Annotations) == 0 && len(c.Forget) == 0 && !c.changesStatus()
}

// changesStatus reports whether a condition of the pod has to be written.
func (c Change) changesStatus() bool {
	return c.Gate != nil || c.GateReason != nil || len(c.Conditions) > 0 || len(c.RemoveConditions) > 0
}

// Apply returns the labels with the change applied. The argument is not modified.
func (c Change) Apply(labels map[string]string) map[string]string {
	result := maps.Clone(labels)
	if result == nil {
		result = map[string]string{}
	}
	for _, key := range c.Remove {
		delete(result, key)
	}
	maps.Copy(result, c.Set)
	return result
}

// diff fills Set and Remove with what leads from one set of labels to another.
func (c *Change) diff(from, to map[string]string) {
	for key, value := range to {
		if had, ok := from[key]; !ok || had != value {
			if c.Set == nil {
				c.Set = map[string]string{}
			}
			c.Set[key] = value
		}
	}
	for key := range from {
		if _, ok := to[key]; !ok {
			c.Remove = append(c.Remove, key)
		}
	}
	slices.Sort(c.Remove)
}
