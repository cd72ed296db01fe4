package podindex

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// pod is one entry of the index. Snapshots share it, so it is replaced and never modified.
type pod struct {
	fact *rule.PodFact

	// base determines the version of the fact.
	base base

	// counts is true for a pod that is neither terminating nor finished.
	counts bool

	// finished is true for a pod that has succeeded or failed and is not terminating.
	finished bool

	// offTraffic is true while PodOps keeps the pod off traffic.
	offTraffic bool

	// gap is why PodOps cannot guard the pod; empty if it can.
	gap gap

	// controller is the owner reference of the pod's controller, and apiVersion its version;
	// zero for a pod without a controller.
	controller rule.Owner
	apiVersion string

	requests []rule.Request

	// readySince is when the pod became Ready; zero for a pod that is not.
	readySince time.Time

	// standing is where the pod stands, for the Observer.
	standing podstate.Standing

	// surplus is true while its deletion waits that has begun for its ReplicaSet.
	surplus bool

	// leaves is true for a pod that counts, once its deletion is permitted.
	leaves bool

	// pending is the request of its StatefulSet or DaemonSet for which it waits; nil for another pod.
	pending *appsv1alpha1.PendingDelete

	// leftover is true for a pod that does not wait and has an annotation that explains an earlier
	// wait.
	leftover bool

	// object is nil unless the pod waits, or is a leftover: then it is about to be written.
	object *corev1.Pod
}

// base is the last change of a pod that rules can see: the resourceVersion after it, and the
// owner and the state of its revision that rules saw then. These change without the pod when owners are added to the
// index or removed.
type base struct {
	resourceVersion string

	// details is the resourceVersion after the last change of what rules see with the details.
	details string

	owner    types.UID
	revision rule.RevisionState
}

// setVersions sets the versions of the fact while the pod has this owner, and its revision this state.
func (b base) setVersions(fact *rule.PodFact) {
	suffix := ""
	if fact.Owner.UID != b.owner {
		suffix += "+" + string(fact.Owner.UID)
	}
	if fact.Revision.State != b.revision {
		suffix += "+" + string(fact.Revision.State)
	}
	fact.Version, fact.Details.Version = b.resourceVersion+suffix, b.details+suffix
}

// newPod returns the entry of an object. before is the entry that it replaces, nil for a new
// pod; owner is the top of the pod's owner chain; cause is why its controller
// deletes it, and of has the revisions of the controller.
func newPod(object *corev1.Pod, owner rule.Owner, cause rule.Cause, of revisions, before *pod) *pod {
	facts := lifecycle.NewPodFacts(object)
	available := podstate.AvailableBy(object, facts)
	p := &pod{
		fact: &rule.PodFact{
			UID:             object.UID,
			Namespace:       object.Namespace,
			Name:            object.Name,
			ResourceVersion: object.ResourceVersion,
			Labels:          object.Labels,
			Annotations:     visibleAnnotations(object.Annotations),
			Owner:           owner,
			Revision:        rule.Revision{Current: revisionHash(object.Labels), State: of.revisionState(revisionHash(object.Labels))},
			Node:            object.Spec.NodeName,
			Created:         object.CreationTimestamp.Time,
			Ready:           facts.Ready,
			AvailableSince:  availableSince(facts, available),
			Permitted:       facts.Permitted(),
			SkipRules:       podstate.SkipRules(object.Annotations),
			BreakGlass:      podstate.BreakGlass(object.Annotations),
			Available:       available,
			Details:         podDetails(object),
		},
		base:       base{resourceVersion: object.ResourceVersion, details: object.ResourceVersion, owner: owner.UID},
		counts:     !facts.Terminating && !podstate.Finished(object),
		finished:   !facts.Terminating && podstate.Finished(object),
		controller: podController(object), apiVersion: controllerAPIVersion(object), gap: availabilityGap(object, facts),
		offTraffic: facts.Permitted() || facts.Gate == lifecycle.GateFalse,
		readySince: facts.ReadySince,
		standing:   podstate.NewStanding(object, facts),
	}
	p.leaves = p.counts && p.fact.Permitted && deferreddelete.IsPermitted(object)
	p.base.revision = p.fact.Revision.State
	if before != nil && sameButOwner(before.fact, p.fact) {
		p.base = before.base
		if !before.fact.Details.Equal(p.fact.Details) {
			p.base.details = object.ResourceVersion
		}
	}
	p.base.setVersions(p.fact)
	for _, w := range lifecycle.WaitingIDs(facts) {
		since, _ := lifecycle.ParseTime(w.Attempt)
		p.requests = append(p.requests, rule.Request{
			Pod: p.fact, Stage: w.Stage, ID: w.ID, Type: w.Type, Attempt: w.Attempt, Since: since,
		})
	}
	if len(p.requests) > 0 {
		p.setPending(object)
	}
	p.setCause(cause)
	p.leftover = len(p.requests) == 0 && deferreddelete.Verdicts[any](object.Annotations) != nil && !facts.Terminating
	if len(p.requests) > 0 || p.leftover {
		p.object = object
	}
	return p
}

// isStray reports whether a pod without a controller is unavailable, and no operation is the cause: nothing
// creates it again.
func (p *pod) isStray() bool {
	return p.controller.UID == "" && !p.fact.Available && !p.fact.Permitted && len(p.requests) == 0
}

// setCause sets the cause of the requests for a deferred delete.
func (p *pod) setCause(cause rule.Cause) {
	for i := range p.requests {
		if p.requests[i].ID == appsv1alpha1.PodDeleteID && p.requests[i].Type == appsv1alpha1.DeleteOperationType {
			p.requests[i].Cause = cause
		}
	}
}

// setPending records the client that the deletion of a pod waits for, in its requests as well, and the users who
// requested operations by labels.
func (p *pod) setPending(object *corev1.Pod) {
	record, ok := deferreddelete.Pending(object)
	requesters := lifecycle.ParseRequesters(object.Annotations)
	for i := range p.requests {
		request := &p.requests[i]
		if entry, known := requesters.Find(appsv1alpha1.OperatingLabelPrefix+"/"+request.ID, object.Labels); known {
			request.Requester = labelRequester(entry)
		}
		if !ok || request.ID != appsv1alpha1.PodDeleteID {
			continue
		}
		request.Requester = rule.Requester{
			Method: record.Method, Actor: record.Actor, User: record.User,
			Groups: strings.Join(record.Groups, "\n"), GroupsTruncated: record.GroupsTruncated,
		}
		if entry, known := requesters.Find(appsv1alpha1.ToDeleteLabelKey, object.Labels); known && record.Actor == string(deferreddelete.ActorLabel) {
			entry.Actor = record.Actor
			request.Requester = labelRequester(entry)
		}
		request.Evicts = deferreddelete.Method(record.Method) == deferreddelete.MethodEviction
		if deferreddelete.Waits(record) {
			request.Requested, request.Refused = deferreddelete.LastSeen(record), deferreddelete.Verdicts[any](object.Annotations) != nil
		}
	}
	switch {
	case deferreddelete.OfReplicaSet(object):
		p.surplus = deferreddelete.ForReplicaSet(object)
	case ok && deferreddelete.Actor(record.Actor) == deferreddelete.ActorOwner:
		p.pending = &record
	}
}

// labelRequester returns the client that set a label.
func labelRequester(entry appsv1alpha1.LabelRequester) rule.Requester {
	return rule.Requester{
		Method: string(deferreddelete.MethodLabel), Actor: entry.Actor, User: entry.User,
		Groups: strings.Join(entry.Groups, "\n"), GroupsTruncated: entry.GroupsTruncated,
	}
}

// withOwner returns the entry of the same object with another owner, cause or state of its revision.
func (p *pod) withOwner(owner rule.Owner, cause rule.Cause, of revisions) *pod {
	fact := *p.fact
	fact.Owner, fact.Revision.State = owner, of.revisionState(fact.Revision.Current)
	p.base.setVersions(&fact)
	other := *p
	other.fact, other.requests = &fact, slices.Clone(p.requests)
	for i := range other.requests {
		other.requests[i].Pod = &fact
	}
	other.setCause(cause)
	return &other
}

// podDetails returns the details of a pod. The containers of a pod that is too large are not kept, while each pod has one.
func podDetails(object *corev1.Pod) rule.PodDetails {
	details := rule.PodDetails{
		Containers: object.Spec.Containers, Unknown: len(object.Spec.Containers) == 0, Conditions: object.Status.Conditions,
	}
	for i := range object.Status.ContainerStatuses {
		details.Restarts = max(details.Restarts, int(object.Status.ContainerStatuses[i].RestartCount))
	}
	if started := object.Status.StartTime; started != nil {
		details.Started = started.Time
	}
	return details
}

func podController(object *corev1.Pod) rule.Owner {
	reference := metav1.GetControllerOfNoCopy(object)
	if reference == nil {
		return rule.Owner{}
	}
	return rule.Owner{Kind: reference.Kind, Name: reference.Name, UID: reference.UID}
}

// availableSince returns when a pod became available: the later one of its label
// service-available and its condition Ready. It returns zero for a pod that is not available.
func availableSince(facts lifecycle.PodFacts, available bool) time.Time {
	if !available {
		return time.Time{}
	}
	since := facts.ReadySince
	if marked, ok := lifecycle.ParseTime(facts.Labels[appsv1alpha1.ServiceAvailableLabelKey]); ok && marked.After(since) {
		since = marked
	}
	return since
}

// sameButOwner compares the fields that built-in and custom rules read, except the owner and the details.
func sameButOwner(a, b *rule.PodFact) bool {
	return sameToBuiltIn(a, b) && maps.Equal(a.Annotations, b.Annotations) && a.Node == b.Node && a.Created.Equal(b.Created) &&
		a.Ready == b.Ready && a.AvailableSince.Equal(b.AvailableSince) && a.Permitted == b.Permitted
}

// sameToBuiltIn compares the fields that rules of the built-in kinds read.
func sameToBuiltIn(a, b *rule.PodFact) bool {
	return a.Name == b.Name && a.Namespace == b.Namespace && a.Available == b.Available &&
		maps.Equal(a.Labels, b.Labels) && slices.Equal(a.SkipRules, b.SkipRules) && a.BreakGlass == b.BreakGlass
}

// sameToDecisions reports whether no decision and no status depends on the difference of two
// entries. custom is true if some rule in the namespace is of kind rego, which reads more.
func sameToDecisions(a, b *pod, custom bool) bool {
	same := sameToBuiltIn(a.fact, b.fact)
	if custom {
		same = a.fact.Details.Version == b.fact.Details.Version
	}
	return same && a.leftover == b.leftover && a.offTraffic == b.offTraffic && a.gap == b.gap &&
		a.finished == b.finished && a.counts == b.counts && a.leaves == b.leaves &&
		a.controller.UID == b.controller.UID && sameRequests(a.requests, b.requests)
}

func sameRequests(a, b []rule.Request) bool {
	return slices.EqualFunc(a, b, func(x, y rule.Request) bool {
		return x.ID == y.ID && x.Stage == y.Stage && x.Type == y.Type && x.Attempt == y.Attempt &&
			x.Pod.ResourceVersion == y.Pod.ResourceVersion
	})
}
