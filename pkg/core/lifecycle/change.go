package lifecycle

import (
	"maps"
	"slices"
	"time"
)

// Step is one transition of the state machine.
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

	// Type of the operation; empty if it is unknown.
	Type string

	// Rules are the names of the rules that passed, for events. Advance leaves them empty.
	Rules []string
}

// Change contains the writes with which every id advances as far as the facts allow. The
// zero value changes nothing.
type Change struct {
	// Set are labels to add or change, Remove the keys to remove (sorted).
	Set    map[string]string
	Remove []string

	// Annotations are set, or removed where the value is nil. No lifecycle needs them: they
	// are human-readable explanations.
	Annotations map[string]*string

	// Forget are employers to drop from the annotation available-conditions, sorted.
	Forget []string

	// Gate is the new status of the condition service-ready; nil keeps it.
	Gate *bool

	// GateReason is the new reason of the condition service-ready, empty to remove the
	// reason, nil to keep it. A change of the gate removes the reason.
	GateReason *string

	// GateMessage is the new message of the condition service-ready together with GateReason;
	// nil keeps it. A change of the gate sets the default message.
	GateMessage *string

	// Conditions must be True on the pod, RemoveConditions are the types to remove; sorted by
	// type. A pod without errors has neither.
	Conditions       []Condition
	RemoveConditions []string

	// Transitions are the steps taken, for events and logs.
	Transitions []Transition

	// Wake is the time until the next Advance if nothing else changes; zero if no
	// further Advance is needed.
	Wake time.Duration

	// WaitsForKubelet is true if the gate is False and the kubelet has not yet made the pod unready.
	WaitsForKubelet bool

	// WaitsForDrain is true if traffic is off and the drain endpoint of the pod has not confirmed that no connection is left.
	WaitsForDrain bool
}

// IsEmpty reports whether nothing must be written.
func (c Change) IsEmpty() bool {
	return len(c.Set) == 0 && len(c.Remove) == 0 && len(c.Annotations) == 0 && len(c.Forget) == 0 && !c.changesStatus()
}

// changesStatus reports whether a condition of the pod must be written.
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

// diff sets Set and Remove to the difference between two sets of labels.
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
