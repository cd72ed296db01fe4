// Package world runs a whole cluster in one process and in virtual time: an API server in memory, the real controllers
// of Kubernetes, PodOps as its program assembles it, kubelets, a load balancer, and the users and programs that change
// their minds. A Schedule has everything that happens, and follows from a seed; laws watch every write.
package world

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind is a kind of workload.
type Kind string

// The kinds of workloads.
const (
	Deployment  Kind = "Deployment"
	ReplicaSet  Kind = "ReplicaSet"
	StatefulSet Kind = "StatefulSet"
	DaemonSet   Kind = "DaemonSet"
	Job         Kind = "Job"

	// Fleet is a custom resource whose controller owns pods, and names another pod when the deletion of a pod is
	// refused, as an Advanced DaemonSet and a CloneSet do.
	Fleet Kind = "Fleet"

	// Rollout is a custom resource whose controller owns ReplicaSets, as Argo Rollouts does.
	Rollout Kind = "Rollout"

	// Group is a StatefulSet of leaders, each of which owns a StatefulSet of workers, as LeaderWorkerSet has them.
	Group Kind = "Group"
)

// Labels is which pods of a workload have the control label.
type Labels string

// The choices of Labels.
const (
	All   Labels = ""
	None  Labels = "none"  // no pod
	Mixed Labels = "mixed" // the template has no label, and a user labels every other pod
)

// Shop is the namespace of controlled workloads, and Strangers that of pods that PodOps must not touch.
const (
	Shop      = "shop"
	Strangers = "strangers"
)

// Workload is a workload that exists when a schedule begins.
type Workload struct {
	Kind     Kind
	Name     string
	Stranger bool // is in Strangers, without the label
	Replicas int
	Labels   Labels

	// Recreate is the strategy of a Deployment without a rolling update. MaxUnavailable and MaxSurge are the fields of
	// a rolling update: percentages, or numbers; empty for the default.
	Recreate                 bool
	MaxUnavailable, MaxSurge string

	// ProgressDeadline is in seconds; 0 for the default.
	ProgressDeadline int

	// Balanced is true if a load balancer puts a protection finalizer on the pods, and takes Drain to drain a pod.
	Balanced bool
	Drain    time.Duration

	// Start and Stop are the times that containers take; zero: the seed decides.
	Start, Stop time.Duration
}

// Namespace returns the namespace of the workload.
func (w Workload) Namespace() string {
	if w.Stranger {
		return Strangers
	}
	return Shop
}

// isLabelled reports whether the pod template in the workload's manifest has the control label.
func (w Workload) isLabelled() bool { return w.Labels == All && !w.Stranger }

// String returns the workload in one line.
func (w Workload) String() string {
	text := fmt.Sprintf("%s %s %d", w.Kind, w.Name, w.Replicas)
	for name, on := range map[string]bool{"Recreate": w.Recreate, "balanced": w.Balanced, "stranger": w.Stranger} {
		if on {
			text += " " + name
		}
	}
	if w.Labels != All {
		text += " labels=" + string(w.Labels)
	}
	if w.MaxUnavailable+w.MaxSurge != "" {
		text += fmt.Sprintf(" maxUnavailable=%q maxSurge=%q", w.MaxUnavailable, w.MaxSurge)
	}
	if w.ProgressDeadline > 0 {
		text += fmt.Sprintf(" progressDeadline=%d", w.ProgressDeadline)
	}
	return text
}

// Act is what one actor does at one time, or from then on.
type Act struct {
	// At is the time since the beginning of the schedule.
	At time.Duration

	// Verb is the act, a key of verbs.
	Verb string

	// On is the name of a workload, or of a node or manager for their verbs.
	On string

	// N is a number: replicas, the index of a pod or a node.
	N int

	// Text qualifies the act, such as the new image.
	Text string

	// For is how long an act lasts, if it does.
	For time.Duration
}

// String returns the act in one line.
func (a Act) String() string {
	parts := []string{fmt.Sprintf("%8s", a.At), a.Verb}
	if a.On != "" {
		parts = append(parts, a.On)
	}
	if a.N != 0 {
		parts = append(parts, fmt.Sprint(a.N))
	}
	if a.Text != "" {
		parts = append(parts, a.Text)
	}
	if a.For != 0 {
		parts = append(parts, "for "+a.For.String())
	}
	return strings.Join(parts, " ")
}

// Schedule is everything that happens, and that the seed decides.
type Schedule struct {
	Seed      uint64
	Nodes     int
	Managers  int  // 0: Kubernetes alone
	BothLead  bool // each manager has a lease of its own
	Workloads []Workload
	Acts      []Act

	// Late are watches of the managers that are late from a time on, for a time: On is the resource.
	Late []Act

	// Length is the time after which the end begins: everything is approved and quiet.
	Length time.Duration

	// Strict makes the bound of every law that has one stricter by this number. Tests use it to show that laws can fail.
	Strict int

	// Short ends the schedule without the rollouts, scale-ins and scale-outs after its end.
	Short bool

	// Events has the Events of PodOps written, which laws read. They are a tenth of all requests.
	Events bool
}

// String returns the schedule, with a line for each workload and act.
func (s Schedule) String() string {
	lines := []string{fmt.Sprintf("seed %d, %d nodes, %d managers, both lead: %t", s.Seed, s.Nodes, s.Managers, s.BothLead)}
	for _, w := range s.Workloads {
		lines = append(lines, "  "+w.String())
	}
	for _, a := range s.Acts {
		lines = append(lines, "  "+a.String())
	}
	for _, a := range s.Late {
		lines = append(lines, "  late: "+a.String())
	}
	return strings.Join(lines, "\n")
}

// serverSide is the text of an act that writes with server-side apply.
const serverSide = "ssa"

// fieldOwners returns the resources whose owners of fields matter: the resources that an act writes with server-side apply.
func (s Schedule) fieldOwners() []string {
	var resources []string
	for _, act := range s.Acts {
		on, ok := s.workload(act.On)
		if !ok || act.Text != serverSide || act.Verb == "hpa" { // an autoscaler writes the Scale
			continue
		}
		kind := on.Kind
		if kind == Group {
			kind = StatefulSet
		}
		if resource := strings.ToLower(string(kind)) + "s"; !slices.Contains(resources, resource) {
			resources = append(resources, resource)
		}
	}
	return resources
}

// workload returns the workload with a name.
func (s Schedule) workload(name string) (Workload, bool) {
	i := slices.IndexFunc(s.Workloads, func(w Workload) bool { return w.Name == name })
	if i < 0 {
		return Workload{}, false
	}
	return s.Workloads[i], true
}

// Violation is a law that did not hold.
type Violation struct {
	Law  string
	At   time.Duration
	Text string
}

// String returns the violation in one line.
func (v Violation) String() string { return fmt.Sprintf("%s: at %s: %s", v.Law, v.At, v.Text) }

// Verdict is the outcome of a schedule.
type Verdict struct {
	Violations []Violation

	// Trace is what happened, at most 60 lines.
	Trace []string

	// Took is the virtual time, and Writes the number of writes.
	Took   time.Duration
	Writes int

	// Removed counts the pods that were removed before the end began, and Left the pods at that time, by workload.
	// Granted counts what clients that count were granted, by the name of the act.
	Removed, Left, Granted map[string]int

	// OffTraffic is the longest time for which a pod that could serve was off traffic, and then came back instead of being removed,
	// before the end began, by workload.
	OffTraffic map[string]time.Duration

	// Unguarded are the reasons of the events about pods that were removed past their rules, before the end began.
	Unguarded []string
}

// Broke reports whether a law was broken.
func (v Verdict) Broke(law string) bool {
	return slices.ContainsFunc(v.Violations, func(v Violation) bool { return v.Law == law })
}

// Laws returns the names of the laws that were broken.
func (v Verdict) Laws() []string {
	var names []string
	for _, violation := range v.Violations {
		if !slices.Contains(names, violation.Law) {
			names = append(names, violation.Law)
		}
	}
	return names
}
