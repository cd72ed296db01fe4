package lifecycle

import (
	"maps"
	"slices"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Permits contains the ids that have passed their rules. A permit is for one attempt: the
// value of the pre-check (or post-check) label at the time of the decision.
type Permits struct {
	// PreCheck and PostCheck map an id to the attempt that passed.
	PreCheck  map[string]string
	PostCheck map[string]string
}

// Options are the waits of the state machine and the limits of its caller.
type Options struct {
	// Settle is the time for which a pod must have been unready before operate, so that
	// every node has removed its endpoints. It applies to pods on which no service
	// controller is expected to put a finalizer.
	Settle time.Duration

	// GateSyncTimeout bounds how long operate waits for the kubelet to make the pod
	// unready, and how long a pod counts as available before the kubelet makes it Ready.
	// Zero: one minute.
	GateSyncTimeout time.Duration

	// GateSyncPolicy is whether operations continue after GateSyncTimeout (GateSyncContinue) or
	// wait for the kubelet (GateSyncHold). Empty: they continue.
	GateSyncPolicy string

	// RecordBegin adds the label began to an id that begins, which identifies the lifecycle until
	// its end. No step depends on it.
	RecordBegin bool

	// LabelsOnly is set by callers that cannot write the gate (admission of pods). They take
	// neither steps that need the gate nor steps that time alone allows: a response of
	// admission must not depend on the clock of its replica.
	LabelsOnly bool
}

const defaultGateSyncTimeout = time.Minute

// Advance returns the labels and the gate to change so that every id on the pod advances
// as far as the facts and the permits allow. It does not modify p. It is a fixed
// point: with the Change applied and no new fact, the next Change is empty. (A gate
// that was written is a new fact: a pod that was unready already may advance to operate
// with the next Change, and is at rest then.)
func Advance(p PodFacts, permits Permits, opts Options, now time.Time) Change {
	if p.Terminating {
		return Change{}
	}
	m := newMachine(p, opts, now)
	if !p.Controlled() {
		m.release()
		m.syncConditions()
		return m.change()
	}
	if opts.LabelsOnly {
		// A permit is written together with the gate.
		permits = Permits{}
	}
	for _, id := range m.ids() {
		m.enter(id)
	}
	for _, id := range m.ids() {
		m.permit(id, permits.PreCheck)
	}
	for _, id := range m.ids() {
		m.operate(id)
	}
	m.create()
	for _, id := range m.ids() {
		m.postCheck(id, permits.PostCheck)
	}
	m.syncPermissions()
	m.syncComplete()
	m.syncGate()
	m.syncReason()
	m.syncAvailable()
	m.forgetGone()
	m.syncConditions()
	return m.change()
}

// machine is the working state of one Advance.
type machine struct {
	facts  PodFacts
	labels map[string]string
	opts   Options
	now    time.Time
	out    Change

	// known are the ids of labels; nil when they must be read again.
	known []string
}

func newMachine(p PodFacts, opts Options, now time.Time) *machine {
	labels := maps.Clone(p.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	if opts.GateSyncTimeout == 0 {
		opts.GateSyncTimeout = defaultGateSyncTimeout
	}
	return &machine{facts: p, labels: labels, opts: opts, now: now}
}

// ids returns every id that some label names, sorted. A change of labels does not change the returned
// list.
func (m *machine) ids() []string {
	if m.known == nil {
		if m.known = operationIDs(m.labels); m.known == nil {
			m.known = []string{}
		}
	}
	return m.known
}

func (m *machine) change() Change {
	m.out.diff(m.facts.Labels, m.labels)
	return m.out
}

func (m *machine) has(prefix, id string) bool { return hasLabel(m.labels, prefix, id) }

func (m *machine) get(prefix, id string) string {
	value, _ := labelValue(m.labels, prefix, id)
	return value
}

// either returns a label's value under the first of two spellings that is present.
func (m *machine) either(prefix, otherPrefix, id string) string {
	if value, ok := labelValue(m.labels, prefix, id); ok {
		return value
	}
	return m.get(otherPrefix, id)
}

func (m *machine) set(prefix, id, value string) {
	if had, ok := labelValue(m.labels, prefix, id); ok && had == value {
		return
	}
	m.labels[label(prefix, id)] = value
	m.known = nil
}

func (m *machine) drop(id string, prefixes ...string) {
	for _, prefix := range prefixes {
		if m.has(prefix, id) {
			delete(m.labels, label(prefix, id))
			m.known = nil
		}
	}
}

func (m *machine) transition(step Step, id, operationType string) {
	m.out.Transitions = append(m.out.Transitions, Transition{Step: step, ID: id, Type: operationType})
}

// elapsed reports whether the pod has had its observed readiness for d, and otherwise sets
// Wake to the remaining time.
func (m *machine) elapsed(d time.Duration) bool {
	left := d - m.facts.SteadyFor
	if left > 0 {
		m.wakeIn(left)
	}
	return left <= 0 && !m.opts.LabelsOnly
}

// wakeIn sets Wake to a time, unless it is sooner already.
func (m *machine) wakeIn(left time.Duration) {
	if m.out.Wake == 0 || left < m.out.Wake {
		m.out.Wake = left
	}
}

// isWaiting reports whether the id waits for PreCheck rules. It wins over contradicting labels.
func (m *machine) isWaiting(id string) bool { return m.has(appsv1alpha1.PreCheckLabelPrefix, id) }

// isPermitted reports whether a permit was given and the operation has not ended. Labels of a
// permit without pre-checked do not count: they can only be remnants.
func (m *machine) isPermitted(id string) bool {
	return m.has(appsv1alpha1.PreCheckedLabelPrefix, id) && !m.isWaiting(id)
}

// isFinished reports whether the operation has ended and the id is not yet cleaned up. Each of
// the labels that only follow a finish suffices, so that the loss of one label never skips
// the PostCheck rules.
func (m *machine) isFinished(id string) bool {
	return slices.ContainsFunc(finishedPrefixes(), func(prefix string) bool { return m.has(prefix, id) })
}

// isComplete reports whether the PostCheck rules have passed. post-check wins over post-checked.
func (m *machine) isComplete(id string) bool {
	return m.isFinished(id) && m.has(appsv1alpha1.PostCheckedLabelPrefix, id) && !m.has(appsv1alpha1.PostCheckLabelPrefix, id)
}

// busy reports whether an id is permitted.
func (m *machine) busy() bool {
	return slices.ContainsFunc(m.ids(), m.isPermitted)
}

// unfinished reports whether an id keeps the pod offline. An id that waits in pre-check does
// not, unless it was operated on already and has not passed PostCheck.
func (m *machine) unfinished() bool {
	return slices.ContainsFunc(m.ids(), func(id string) bool {
		return m.isPermitted(id) || m.isFinished(id) && !m.isComplete(id) || m.has(appsv1alpha1.UncheckedLabelPrefix, id)
	})
}

// stayOffline reports whether the user keeps the pod off traffic, independent of its ids.
func (m *machine) stayOffline() bool { return hasKey(m.labels, appsv1alpha1.StayOfflineLabelKey) }
