// Package rule has the values that an evaluation takes and returns: requests and their environment
// in, verdicts with reasons out. It is pure: values only, no client, clock, context or engine.
package rule

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// PodFact has the fields of one pod that rules read. It is immutable once published: maps and
// slices are shared with the cache and must not be modified.
type PodFact struct {
	UID             types.UID
	Namespace       string
	Name            string
	ResourceVersion string

	// Version changes if, and only if, a field that rules read changes: it is the resourceVersion
	// of the last such change. Verdicts may be cached by UID and Version.
	Version string

	Labels map[string]string

	// Annotations are the annotations with values of at most 256 bytes, without PodOps' own; the
	// first 32 by name.
	Annotations map[string]string

	// Owner is the known workload at the top of the pod's controller chain; zero for a
	// pod without a known workload.
	Owner Owner

	// Revision is the revision of its workload that the pod was made from.
	Revision Revision

	// Node is the node that the pod is bound to; empty if it is not.
	Node string

	// Created is when the API server accepted the pod.
	Created time.Time

	// Ready is the condition of the kubelet.
	Ready bool

	// AvailableSince is when the pod became available; zero if it is not.
	AvailableSince time.Time

	// Permitted is set if a lifecycle of the pod holds a permit and has not ended.
	Permitted bool

	// SkipRules are the names of rules that the pod skips, from its annotation.
	SkipRules []string

	// BreakGlass is the reason of the pod's break-glass annotation, in one line of at most
	// MaxBreakGlassBytes; empty without the annotation.
	BreakGlass string

	// Available is set if the pod has the label service-available, is Ready, and is neither
	// terminating nor finished.
	Available bool

	// Details are the fields that only modules read which name them.
	Details PodDetails
}

// MaxBreakGlassBytes bounds the reason of a break-glass annotation.
const MaxBreakGlassBytes = 128

// Owner is a workload that pods belong to.
type Owner struct {
	Kind string
	Name string
	UID  types.UID
}

// Workload is what a workload of pods wants.
type Workload struct {
	// Desired is the number of pods that it wants.
	Desired int

	// Revision is the hash of the pod template that it makes new pods from, as Revision.Current of its pods; empty
	// if it is not known.
	Revision string

	// Paused is spec.paused of a Deployment, and spec.suspend of a Job.
	Paused bool
}

// Node is what rules read of a node besides its name.
type Node struct {
	Labels        map[string]string
	Unschedulable bool

	// Conditions are the statuses of its conditions by type, such as Ready: "True".
	Conditions map[string]string
}

// Revision is the revision of a workload that a pod was made from.
type Revision struct {
	// Current is the hash of the pod template: the label pod-template-hash or
	// controller-revision-hash; empty if the pod has neither.
	Current string

	// State is the role of the revision in the rollout of the workload.
	State RevisionState
}

// RevisionState is the role of a revision in the rollout of a workload.
type RevisionState string

// The states of a revision.
const (
	// RevisionUnknown means that the workload is neither a Deployment nor a StatefulSet, or has not
	// been observed.
	RevisionUnknown RevisionState = "Unknown"

	// RevisionNewest means that the workload makes new pods from it.
	RevisionNewest RevisionState = "Newest"

	// RevisionOutdated means that the workload replaces the pods of the revision by pods of a newer
	// revision.
	RevisionOutdated RevisionState = "Outdated"

	// RevisionAbandoned means that the revision is outdated, and that its rollout ended before it had
	// replaced the previous revision: the workload was rolled back, or updated again.
	RevisionAbandoned RevisionState = "Abandoned"
)

// Request is one id of one pod that waits in one stage.
type Request struct {
	Pod   *PodFact
	Stage appsv1alpha1.TransitionStage

	// ID and Type are the id and the operation type of the lifecycle.
	ID   string
	Type string

	// Cause is why PodOps started the lifecycle; empty for any other lifecycle, or while it is not
	// known.
	Cause Cause

	// Requester is the client that has requested the operation, in PreCheck; zero while that is not known.
	Requester Requester

	// Evicts is true if the request is an eviction, which the API server decides about by PodDisruptionBudgets.
	Evicts bool

	// Requested is when a client that waits for the answer last requested the deletion, and Refused whether it was answered since that
	// rules withhold the pod; zero for any other lifecycle. A permit that no client waits for would take the pod off traffic in vain.
	Requested time.Time
	Refused   bool

	// Attempt is the value of the label that marks the request. A verdict is valid for this
	// value only.
	Attempt string

	// Since is when the request began to wait: Attempt as a time. Zero if Attempt is not a
	// time.
	Since time.Time

	// Task is the state of the request at the external service of a webhook rule. It is set for the
	// rule that is evaluated, and zero for all other kinds.
	Task Task

	// Approval has the decisions about the revision that replaces the pod, for a rule of kind approval; nil for all other
	// kinds. It is not modified.
	Approval *Approval
}

// Approval is what users have decided about the revision of a workload.
type Approval struct {
	// Workload is the kind and the name of the workload; empty for a pod without one of a kind that has revisions.
	Workload string

	// Revision is the hash of its pod template; empty while it is not known.
	Revision string

	// Current is true for a pod that runs the revision.
	Current bool

	// Author is the user who wrote the revision; empty if that is not known.
	Author string

	// ApprovedBy and DeniedBy are the users with decisions that have not expired, sorted.
	ApprovedBy, DeniedBy []string

	// Denial is the reason that the first user in DeniedBy gave, and Reasons are those of the users in ApprovedBy, each after its
	// user; at most MaxMessageBytes each.
	Denial, Reasons string

	// Next is when the first of the decisions expires; zero for never.
	Next time.Time
}

// IsUsed reports whether a pod that passes is replaced by a revision that users have approved.
func (a *Approval) IsUsed() bool { return a != nil && !a.Current && len(a.ApprovedBy) > 0 }

// Equals reports whether two approvals are the same; nil equals nil only.
func (a *Approval) Equals(b *Approval) bool {
	if a == nil || b == nil || a == b {
		return a == b
	}
	return a.Workload == b.Workload && a.Revision == b.Revision && a.Current == b.Current && a.Author == b.Author &&
		a.Denial == b.Denial && a.Reasons == b.Reasons && a.Next.Equal(b.Next) && slices.Equal(a.ApprovedBy, b.ApprovedBy) && slices.Equal(a.DeniedBy, b.DeniedBy)
}

// Requester is a client that requests an operation on a pod, as its review has it: by what request, its class (a
// deferreddelete.Actor), its user name, cut to 256 bytes, and its groups, one a line, sorted. GroupsTruncated is true if
// groups are missing.
type Requester struct {
	Method, Actor, User, Groups string
	GroupsTruncated             bool
}

// GroupList returns the groups of the user; nil without any.
func (r Requester) GroupList() []string {
	if r.Groups == "" {
		return nil
	}
	return strings.Split(r.Groups, "\n")
}

// Cause is why a pod is deleted by the ReplicaSet that controls it.
type Cause string

// The causes.
const (
	// CauseRollout means that the ReplicaSet has an older revision of its Deployment.
	CauseRollout Cause = "Rollout"

	// CauseScaleIn means that the ReplicaSet has the newest revision, or no Deployment, and
	// requires fewer pods.
	CauseScaleIn Cause = "ScaleIn"
)

// TaskState is the state of a request at an external service.
type TaskState string

// The states of a task. The zero value means that the service has not been called.
const (
	// TaskCalling means that the call is in flight.
	TaskCalling TaskState = "Calling"

	// TaskPolling means that the service has accepted the task and is polled.
	TaskPolling TaskState = "Polling"

	// TaskApproved means that the service approved it, for this pod (by UID), this request (by its
	// generation) and this generation of the rule.
	TaskApproved TaskState = "Approved"

	// TaskFailed means that the call failed, or the service rejected the pod. It is called again
	// later.
	TaskFailed TaskState = "Failed"
)

// Task is the state of a request at an external service, with its message.
type Task struct {
	State TaskState

	// Class is the class of the failure; empty unless State is TaskFailed. See webhookclient.Class.
	Class string

	// Answered means that the service has answered for the request, and has not approved it. Only a
	// request without an answer passes by failurePolicy Ignore.
	Answered bool

	// Message is the message of the service, or of the failure; at most MaxMessageBytes.
	Message string

	// RetryAt is when the service may be called again; zero unless State is TaskFailed.
	RetryAt time.Time

	// RetryDue means that RetryAt has passed.
	RetryDue bool
}

// Key identifies the request among all requests of all pods.
func (r Request) Key() string {
	return string(r.Pod.UID) + "/" + string(r.Stage) + "/" + r.ID
}

// Counts are the aggregates over the pods that one PodTransitionRule selects.
type Counts struct {
	// Selected is the number of selected pods that are neither terminating nor finished, and of available pods without the
	// control label of workloads whose desired number counts.
	Selected int

	// Desired is the number that percentages refer to: the replicas of the owners, plus selected
	// pods without such an owner.
	Desired int

	// Available is the number of available ones among Selected.
	Available int

	// Reserved is the number of available pods with a recorded permit that is not yet visible on
	// the pod. They count as unavailable.
	Reserved int
}

// Namespace has the fields of a namespace that rules read.
type Namespace struct {
	Name   string
	Labels map[string]string
}

// Permit is a recent permit under a PodTransitionRule.
type Permit struct {
	// Pod is the name of the pod.
	Pod string
	At  time.Time
}

// Environment has the facts beyond the pod of the request. The program of a rule reports which of
// them it reads (opa.Needs); the others may be empty.
type Environment struct {
	// Now is the time of the decision.
	Now time.Time

	Namespace Namespace
	Counts    Counts

	// Pods are the pods that the PodTransitionRule selects, including terminating pods and the pod
	// of the request, without finished pods; a rule sees all but the pod of the request. Sorted by
	// name.
	Pods []*PodFact

	// Committed are the pods that are about to become unavailable: reserved, or granted earlier in
	// the same round. A rule sees them as permitted and not available.
	Committed map[types.UID]bool

	// Permits are the recent permits, oldest first.
	Permits []Permit

	// Workloads are the workloads with known numbers, by UID: those of PodFact.Owner.
	Workloads map[types.UID]Workload

	// Nodes are the known nodes of pods that wait, by name. A node is not modified: another pointer is another state.
	Nodes map[string]*Node
}
