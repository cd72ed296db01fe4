package explain

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podops-dev/podops/pkg/view/doctor"
)

// Explanation is why an object waits. Its JSON is stable: fields are added and never changed.
type Explanation struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`

	// Phase is the phase of a pod in its lifecycle (podstate.Phase), empty for other kinds.
	Phase string `json:"phase,omitempty"`

	// Since is when the phase began.
	Since *metav1.Time `json:"since,omitempty"`

	// Summary is the answer in one sentence.
	Summary string `json:"summary"`

	// Operations are the operations that are requested of a pod.
	Operations []Operation `json:"operations,omitempty"`

	// Pods are the pods of a workload or a rule, counted.
	Pods *Pods `json:"pods,omitempty"`

	// Reasons are why the object waits, the weightiest first. Empty if it does not.
	Reasons []Reason `json:"reasons"`

	// Notes hold nothing, and complete the picture.
	Notes []Reason `json:"notes,omitempty"`

	// Findings are what doctor finds about the rules and budgets that select the pods, beside the reasons.
	Findings []doctor.Finding `json:"findings,omitempty"`

	// LetGo are the commands that let a pod go although rules withhold it, the mildest first.
	LetGo []Command `json:"letGo,omitempty"`

	// Unreadable are the resources that could not be read, so that reasons may be missing.
	Unreadable []string `json:"unreadable,omitempty"`
}

// Operation is an operation that is requested of a pod.
type Operation struct {
	ID    string `json:"id"`
	Type  string `json:"type"`
	Phase string `json:"phase"`

	// Since is when the phase began, Requested when the operation was requested.
	Since     *metav1.Time `json:"since,omitempty"`
	Requested *metav1.Time `json:"requested,omitempty"`

	// By is who requested a deletion, and how.
	By string `json:"by,omitempty"`
}

// Reason is one reason why an object waits.
type Reason struct {
	Situation Situation `json:"situation"`

	// Message is the reason in one sentence, as events and status have it.
	Message string `json:"message"`

	// Rule is "<PodTransitionRule>/<rule>", Kind its kind, and Code the stable code of its reason.
	Rule string `json:"rule,omitempty"`
	Kind string `json:"kind,omitempty"`
	Code string `json:"code,omitempty"`

	// Stage is the stage of the rule: PreCheck or PostCheck.
	Stage string `json:"stage,omitempty"`

	Numbers *Numbers `json:"numbers,omitempty"`

	// InTheWay are the pods that hold the budget, at most 20 of them, and InTheWayMore how many more there are.
	InTheWay     []PodInTheWay `json:"inTheWay,omitempty"`
	InTheWayMore int           `json:"inTheWayMore,omitempty"`

	// Finalizers are the finalizers that hold back the operation, or are missing.
	Finalizers []Finalizer `json:"finalizers,omitempty"`

	// Pods are the pods of a workload or a rule with this reason, at most 20 of them, and Count all of them.
	Pods  []string `json:"pods,omitempty"`
	Count int      `json:"count,omitempty"`

	// Since is when this reason began, as far as the objects show it.
	Since *metav1.Time `json:"since,omitempty"`

	// NextCheck is when the rule is evaluated, or its service called, again although nothing has changed.
	NextCheck *metav1.Time `json:"nextCheck,omitempty"`

	// Commands help, the first of them best.
	Commands []Command `json:"commands,omitempty"`

	// Docs is the section of the documentation.
	Docs string `json:"docs"`

	rank rank
}

// Numbers are the numbers of a limit: a slot needs Needed, and Have is left of Limit.
type Numbers struct {
	Needed int32 `json:"needed"`
	Have   int32 `json:"have"`
	Limit  int32 `json:"limit"`
}

// PodInTheWay is a pod that takes a slot of a limit.
type PodInTheWay struct {
	Name  string `json:"name"`
	Phase string `json:"phase"`

	// Since is when the phase began.
	Since *metav1.Time `json:"since,omitempty"`
}

// Finalizer is a protection finalizer that is left on a pod or missing.
type Finalizer struct {
	Name string `json:"name"`

	// State is "left" or "missing".
	State string `json:"state"`

	// Employers expect it, as <Kind>/<namespace>/<name>, and Controller writes it, as far as both are known.
	Employers  []string `json:"employers,omitempty"`
	Controller string   `json:"controller,omitempty"`
}

// Pods are pods, counted.
type Pods struct {
	Desired   int32 `json:"desired"`
	Total     int32 `json:"total"`
	Available int32 `json:"available"`
	Waiting   int32 `json:"waiting"`

	// OffTraffic is the number of pods between their permit and traffic.
	OffTraffic int32 `json:"offTraffic"`
}

// Command is a command that helps.
type Command struct {
	// Purpose is the purpose of the command.
	Purpose string `json:"purpose"`

	// Run is the command line.
	Run string `json:"run"`
}

// rank orders reasons.
type rank int

const (
	// rankNothingMoves is for reasons without whose repair nothing moves.
	rankNothingMoves rank = iota

	// rankEdit is for reasons that need an edit, rankDenied for denials, and rankLater for reasons that pass
	// with time.
	rankEdit
	rankDenied
	rankLater
)

func timeOrNil(at time.Time) *metav1.Time {
	if at.IsZero() {
		return nil
	}
	return &metav1.Time{Time: at.UTC().Truncate(time.Second)}
}
