package podstate

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
)

// Phase is the phase of a pod: the first phase that fits, in the order of Phases.
type Phase string

// The phases.
const (
	// PhaseTerminating means that the pod is deleted, and its kubelet stops it.
	PhaseTerminating Phase = "Terminating"

	// PhaseFinished means that the pod has succeeded or failed.
	PhaseFinished Phase = "Finished"

	// PhaseNotControlled means that the pod is not under PodOps.
	PhaseNotControlled Phase = "NotControlled"

	// PhaseOperating means that an operation may run on the pod: operate.
	PhaseOperating Phase = "Operating"

	// PhasePreparing means that the traffic of the pod goes off for an operation: prepare.
	PhasePreparing Phase = "Preparing"

	// PhasePostCheck means that an operation is over, or the pod is new, and its PostCheck rules are evaluated.
	PhasePostCheck Phase = "PostCheck"

	// PhasePreCheck means that an operation waits for its PreCheck rules.
	PhasePreCheck Phase = "PreCheck"

	// PhaseCompleting means that the PostCheck rules have passed, and traffic comes back.
	PhaseCompleting Phase = "Completing"

	// PhaseAvailable means that the pod may serve, and nothing is requested of it.
	PhaseAvailable Phase = "Available"

	// PhaseOffline means that the label stay-offline keeps the pod off traffic.
	PhaseOffline Phase = "Offline"

	// PhaseUnavailable means that the pod is not available, and no operation is the cause: it starts, or
	// has become unready.
	PhaseUnavailable Phase = "Unavailable"
)

// Phases returns all phases, in the order in which they decide.
func Phases() []Phase {
	return []Phase{
		PhaseTerminating, PhaseFinished, PhaseNotControlled, PhaseOperating, PhasePreparing, PhasePostCheck, PhasePreCheck,
		PhaseCompleting, PhaseAvailable, PhaseOffline, PhaseUnavailable,
	}
}

// State is the state of a pod in its lifecycles.
type State struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Phase     Phase  `json:"phase"`

	// Since is when the phase began; zero if the pod does not show it.
	Since time.Time `json:"since,omitzero"`

	// Available is whether the pod counts as available for rules. A pod in PreCheck still is.
	Available bool `json:"available"`
	Ready     bool `json:"ready"`

	// Operations are the operations that are requested of the pod, by id.
	Operations []Operation `json:"operations,omitempty"`

	// Pending is the change of traffic that the pod waits for; nil if it waits for no change of
	// traffic.
	Pending *lifecycle.Pending `json:"pending,omitempty"`

	// Finalizers are the protection finalizers that are expected, or on the pod, by name.
	Finalizers []Finalizer `json:"finalizers,omitempty"`

	// Delete is the deferred delete or eviction of the pod; nil if none is pending.
	Delete *appsv1alpha1.PendingDelete `json:"delete,omitempty"`

	// Withheld are the rules that withhold the pod according to its annotations, which follow after 10 s.
	Withheld []Withheld `json:"withheld,omitempty"`

	// SkipRules are the names of rules that the pod skips.
	SkipRules []string `json:"skipRules,omitempty"`

	// BreakGlass is the reason of the pod's break-glass annotation; empty without the
	// annotation.
	BreakGlass string `json:"breakGlass,omitempty"`

	// StayOffline is whether the label stay-offline is on the pod.
	StayOffline bool `json:"stayOffline,omitempty"`

	// Facts are the facts that the state machine reads from the pod.
	Facts lifecycle.PodFacts `json:"-"`
}

// Operation is one operation that is requested of a pod.
type Operation struct {
	ID   string `json:"id"`
	Type string `json:"type"`

	// Phase is one of PhasePreCheck, PhasePreparing, PhaseOperating, PhasePostCheck and PhaseCompleting.
	Phase Phase `json:"phase"`

	// Since is when that phase began; zero if the labels do not show it.
	Since time.Time `json:"since,omitzero"`

	// Requested is when the operation was requested, according to its operation controller; zero if that is unknown.
	Requested time.Time `json:"requested,omitzero"`
}

// Describe returns the operation, human-readable.
func (o Operation) Describe() string { return lifecycle.DescribeOperation(o.Type, o.ID) }

// Finalizer is a protection finalizer.
type Finalizer struct {
	Name string `json:"name"`

	// Employers expect the finalizer, as <Kind>/<namespace>/<name>; empty if no entry of the
	// annotation available-conditions names it.
	Employers []string `json:"employers,omitempty"`

	// Present is whether the finalizer is on the pod.
	Present bool `json:"present"`
}

// Withheld is a rule that withholds a pod, as the annotations of the pod have it.
type Withheld struct {
	// Ruleset is the name of the PodTransitionRule, cut as the key of the annotation is.
	Ruleset string                       `json:"podTransitionRule"`
	Rule    string                       `json:"rule"`
	Stage   appsv1alpha1.TransitionStage `json:"stage"`
	Code    string                       `json:"code"`
	Message string                       `json:"message"`
}

// Of returns the state of a pod. gone reports whether an employer of the pod does not exist or does not
// select it; nil if that is unknown.
func Of(pod *corev1.Pod, gone func(employer string) bool) State {
	facts := lifecycle.NewPodFacts(pod)
	if gone != nil {
		for _, employer := range facts.Missing() {
			if gone(employer) {
				facts.Gone = append(facts.Gone, employer)
			}
		}
	}
	state := State{
		Namespace: pod.Namespace, Name: pod.Name, Available: AvailableBy(pod, facts), Ready: facts.Ready,
		Operations: listOperations(facts), Finalizers: listFinalizers(facts), Withheld: WithheldBy(pod.Annotations),
		SkipRules: SkipRules(pod.Annotations), BreakGlass: BreakGlass(pod.Annotations), Facts: facts,
	}
	state.StayOffline = staysOffline(pod)
	if pending, ok := lifecycle.FindPending(facts); ok {
		state.Pending = &pending
	}
	if record, ok := deferreddelete.Pending(pod); ok {
		state.Delete = &record
	}
	state.Phase, state.Since = podPhase(pod, facts)
	return state
}

// podPhase returns the phase of a pod, and when it began.
func podPhase(pod *corev1.Pod, facts lifecycle.PodFacts) (Phase, time.Time) {
	switch {
	case pod.DeletionTimestamp != nil:
		return PhaseTerminating, deletedAt(pod)
	case Finished(pod):
		return PhaseFinished, time.Time{}
	case !facts.Controlled():
		return PhaseNotControlled, time.Time{}
	}
	if phase, since := firstOperation(pod.Labels); phase != "" {
		return phase, since
	}
	switch {
	case AvailableBy(pod, facts):
		since, _ := lifecycle.ParseTime(pod.Labels[appsv1alpha1.ServiceAvailableLabelKey])
		return PhaseAvailable, since
	case staysOffline(pod):
		return PhaseOffline, facts.GateSince
	case facts.ReadySince.IsZero():
		return PhaseUnavailable, pod.CreationTimestamp.Time
	default:
		return PhaseUnavailable, facts.ReadySince
	}
}

// firstOperation returns the phase of a pod that the operations on it determine, and when the first of them
// began it; an empty phase without operations.
func firstOperation(labels map[string]string) (phase Phase, since time.Time) {
	for _, id := range lifecycle.IDs(labels) {
		of, at := phaseOfID(labels, id)
		switch {
		case of == "" || phase != "" && precedence(of) > precedence(phase):
		case of != phase || at.Before(since):
			phase, since = of, at
		}
	}
	return phase, since
}

// precedence returns the place of an operation's phase in Phases.
func precedence(phase Phase) int {
	switch phase {
	case PhaseOperating:
		return 0
	case PhasePreparing:
		return 1
	case PhasePostCheck:
		return 2
	case PhasePreCheck:
		return 3
	default:
		return 4
	}
}

func staysOffline(pod *corev1.Pod) bool {
	_, stays := pod.Labels[appsv1alpha1.StayOfflineLabelKey]
	return stays
}

// Standing is the part of a State that metrics count.
type Standing struct {
	Phase Phase

	// Since is when the phase began; zero if the pod does not show it.
	Since time.Time

	// DeleteHeld is whether PodOps holds a delete or an eviction of the pod.
	DeleteHeld bool
}

// NewStanding returns the Standing of a pod. It costs a fraction of Of.
func NewStanding(pod *corev1.Pod, facts lifecycle.PodFacts) Standing {
	phase, since := podPhase(pod, facts)
	held := phase != PhaseTerminating && phase != PhaseFinished && deferreddelete.IsDeferred(pod.Labels)
	return Standing{Phase: phase, Since: since, DeleteHeld: held}
}

// deletedAt returns when the deletion of a pod was requested.
func deletedAt(pod *corev1.Pod) time.Time {
	at := pod.DeletionTimestamp.Time
	if grace := pod.DeletionGracePeriodSeconds; grace != nil {
		at = at.Add(-time.Duration(*grace) * time.Second)
	}
	return at
}

// In returns the operations in a phase.
func (s State) In(phase Phase) []Operation {
	return slices.DeleteFunc(slices.Clone(s.Operations), func(o Operation) bool { return o.Phase != phase })
}

// listOperations returns the operations whose ids are in a phase on a pod.
func listOperations(facts lifecycle.PodFacts) []Operation {
	var operations []Operation
	for _, id := range lifecycle.IDs(facts.Labels) {
		get := func(prefix string) (string, bool) { value, ok := facts.Labels[prefix+"/"+id]; return value, ok }
		operation := Operation{ID: id}
		for _, prefix := range []string{appsv1alpha1.OperationTypeLabelPrefix, appsv1alpha1.DoneOperationTypeLabelPrefix} {
			if value, ok := get(prefix); ok && operation.Type == "" {
				operation.Type = value
			}
		}
		if value, ok := get(appsv1alpha1.OperatingLabelPrefix); ok {
			operation.Requested, _ = lifecycle.ParseTime(value)
		}
		if operation.Phase, operation.Since = phaseOfID(facts.Labels, id); operation.Phase != "" {
			operations = append(operations, operation)
		}
	}
	return operations
}

// phaseOfID returns the phase of an id, and when it began; empty for an id that is in none.
func phaseOfID(labels map[string]string, id string) (phase Phase, since time.Time) {
	for _, step := range steps() {
		if value, ok := lifecycle.Value(labels, step.prefix, id); ok {
			since, _ = lifecycle.ParseTime(value)
			return step.phase, since
		}
	}
	return "", time.Time{}
}

// step is the label that an id has in a phase.
type step struct {
	prefix string
	phase  Phase
}

// steps returns the labels in the order in which the state machine reads them: pre-check wins over
// contradicting labels.
func steps() [7]step {
	return [...]step{
		{appsv1alpha1.PreCheckLabelPrefix, PhasePreCheck},
		{appsv1alpha1.OperateLabelPrefix, PhaseOperating},
		{appsv1alpha1.PrepareLabelPrefix, PhasePreparing},
		{appsv1alpha1.PostCheckLabelPrefix, PhasePostCheck},
		{appsv1alpha1.CompleteLabelPrefix, PhaseCompleting},
		{appsv1alpha1.PostCheckedLabelPrefix, PhaseCompleting},
		{appsv1alpha1.OperatedLabelPrefix, PhasePostCheck},
	}
}

// listFinalizers returns the protection finalizers that are expected, or on the pod, sorted.
func listFinalizers(facts lifecycle.PodFacts) []Finalizer {
	byName := map[string]*Finalizer{}
	named := func(name string) *Finalizer {
		if byName[name] == nil {
			byName[name] = &Finalizer{Name: name}
		}
		return byName[name]
	}
	for _, employer := range slices.Sorted(maps.Keys(facts.Expected)) {
		finalizer := named(facts.Expected[employer])
		finalizer.Employers = append(finalizer.Employers, employer)
	}
	for _, name := range facts.Finalizers {
		if lifecycle.IsProtectionFinalizer(name) || byName[name] != nil {
			named(name).Present = true
		}
	}
	var finalizers []Finalizer
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		finalizers = append(finalizers, *byName[name])
	}
	return finalizers
}

// WithheldBy decodes the annotations that name the rules which withhold a pod, sorted by their keys.
// A malformed annotation counts as absent: others than PodOps may write it.
func WithheldBy(annotations map[string]string) []Withheld {
	var withheld []Withheld
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		name, ok := strings.CutPrefix(key, appsv1alpha1.DetailAnnotationPrefix+"/")
		if !ok || len(annotations[key]) > appsv1alpha1.MaxAnnotationBytes {
			continue
		}
		var detail appsv1alpha1.Detail
		if json.Unmarshal([]byte(annotations[key]), &detail) != nil {
			continue
		}
		for _, info := range detail.RejectInfo {
			code, message, _ := strings.Cut(info.Reason, ": ")
			withheld = append(withheld, Withheld{Ruleset: name, Rule: info.RuleName, Stage: detail.Stage, Code: code, Message: message})
		}
	}
	return withheld
}
