// Package rule has the values that an evaluation takes and returns: requests and their
// environment in, verdicts with reasons out. It is pure: values only, no client, clock, context or engine.
package rule

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// PodFact is what rules may know of one pod. It is immutable once published: maps
// and slices are shared with the cache and must not be modified.
type PodFact struct {
	UID             types.UID
	Namespace       string
	Name            string
	ResourceVersion string

	// Version changes when, and only when, something that rules can see changes: the
	// resourceVersion at which that last happened. Together with the UID it is a key
	// under which verdicts may be remembered.
	Version string

	Labels map[string]string

	// Annotations are the short ones: values of at most 256 bytes, none of PodOps'
	// own, and the first 32 by name.
	Annotations map[string]string

	// Owner is the workload at the top of the chain of controllers of the pod, as far
	// as it is known; zero when the pod has none.
	Owner Owner

	// Node that the pod is bound to; empty when it is not.
	Node string

	// Created is when the API server accepted the pod.
	Created time.Time

	// Ready: the kubelet says so.
	Ready bool

	// AvailableSince is when the pod became available; zero when it is not.
	AvailableSince time.Time

	// Permitted: some lifecycle of the pod holds a permit and has not ended.
	Permitted bool

	// SkipRules are the names of rules that the pod skips, from its annotation.
	SkipRules []string

	// Available: the pod carries service-available, is Ready, and is neither
	// terminating nor finished (design section 4).
	Available bool
}

// Owner is a workload that pods belong to.
type Owner struct {
	Kind string
	Name string
	UID  types.UID
}

// Request is one id of one pod that waits in one stage.
type Request struct {
	Pod   *PodFact
	Stage appsv1alpha1.TransitionStage

	// ID and Type of the lifecycle.
	ID   string
	Type string

	// Cause is why PodOps began the lifecycle; empty for one that it did not begin, or while
	// that is not known.
	Cause Cause

	// Generation is the value of the label that marks the waiting. A verdict counts
	// for this value only.
	Generation string

	// Since is when the waiting began: Generation as a time. Zero when Generation is
	// not a time.
	Since time.Time

	// Task is how far the external service of a webhook rule has come with the request.
	// It is filled in for the rule that is asked, and zero for all other kinds.
	Task Task
}

// Cause is why a pod is deleted by the ReplicaSet that controls it.
type Cause string

// The causes.
const (
	// CauseRollout: the ReplicaSet is of an older revision of its Deployment.
	CauseRollout Cause = "Rollout"

	// CauseScaleIn: the ReplicaSet is of the newest revision, or of no Deployment, and wants
	// fewer pods.
	CauseScaleIn Cause = "ScaleIn"
)

// TaskState is how far an external service has come with a request.
type TaskState string

// The states of a task. The zero value is none: the service has not been called.
const (
	// TaskCalling: the service is being called and has not answered.
	TaskCalling TaskState = "Calling"

	// TaskPolling: the service works on it, and is asked from time to time.
	TaskPolling TaskState = "Polling"

	// TaskApproved: the service approved it, for this pod (by UID), this request (by its
	// generation) and this generation of the rule.
	TaskApproved TaskState = "Approved"

	// TaskFailed: the call failed, or the service said no. It is called again later.
	TaskFailed TaskState = "Failed"
)

// Task is what is known of a request that an external service is asked about.
type Task struct {
	State TaskState

	// Class of the failure; empty unless State is TaskFailed. See webhookclient.Class.
	Class string

	// Answered: the service has answered about the request, and has not approved it. Only a
	// request without an answer passes by failurePolicy Ignore.
	Answered bool

	// Message of the service, or of the failure; at most MaxMessageBytes.
	Message string

	// RetryAt is when the service may be called again; zero unless State is TaskFailed.
	RetryAt time.Time

	// RetryDue: RetryAt has come.
	RetryDue bool
}

// Key identifies the request among all requests of all pods.
func (r Request) Key() string {
	return string(r.Pod.UID) + "/" + string(r.Stage) + "/" + r.ID
}

// Counts are the aggregates over the pods that one PodTransitionRule selects.
type Counts struct {
	// Selected pods, terminating and finished ones left out.
	Selected int

	// Desired is the number of pods that percentages are taken of: the replicas that
	// the owners want, plus selected pods without such an owner.
	Desired int

	// Available of the selected pods.
	Available int

	// Reserved of the available pods: a permit for them is recorded, but its stamp is
	// not yet seen. They count as unavailable.
	Reserved int
}

// Namespace is what rules may know of a namespace.
type Namespace struct {
	Name   string
	Labels map[string]string
}

// Permit is one that was given lately under a PodTransitionRule.
type Permit struct {
	// Pod is its name.
	Pod string
	At  time.Time
}

// Environment are the facts beyond the pod that asks. Which of them a rule reads, its
// program says (opa.Needs); what it does not read may be left out.
type Environment struct {
	// Now is the time of the decision.
	Now time.Time

	Namespace Namespace
	Counts    Counts

	// Pods are those that the PodTransitionRule selects, terminating ones included and
	// finished ones left out, the one that asks among them; a rule sees the others.
	// Sorted by name.
	Pods []*PodFact

	// Taken are the pods that are about to become unavailable: reserved, or granted
	// earlier in the same round. A rule sees them as permitted and not available.
	Committed map[types.UID]bool

	// Permits given lately, oldest first.
	Permits []Permit
}
