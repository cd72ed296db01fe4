package podtransitionrule

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/podops-dev/podops/pkg/facts"
	"github.com/podops-dev/podops/pkg/policy"
)

// Event reasons. They never change.
const (
	// EventWithheld: a rule does not let the pod pass.
	EventWithheld = "Withheld"

	// EventWouldWithhold: a rule that only warns would not let the pod pass.
	EventWouldWithhold = "WouldWithhold"

	// EventQuarantined, on the PodTransitionRule: a rule is not asked any more.
	EventQuarantined = "Quarantined"

	// EventUnknownPods, on the PodTransitionRule: a service named pods that it was not
	// asked about.
	EventUnknownPods = "UnknownPods"
)

// tell records why a pod waits: once when it starts to wait for a rule, and again when
// it waits for another one. Numbers in a message change all the time and are no news.
func (r *Reconciler) tell(view facts.View, d *decision) {
	r.mu.Lock()
	before := r.told[view.Namespace]
	now := map[string]string{}
	for _, request := range view.Waiting {
		key := request.Key()
		if said := digest(d.withheld[key]) + "|" + digest(d.warned[key]); said != "|" {
			now[key] = said
		}
	}
	r.told[view.Namespace] = now
	if len(now) == 0 {
		delete(r.told, view.Namespace)
	}
	r.mu.Unlock()

	for _, request := range view.Waiting {
		key := request.Key()
		pod := view.Pod(request.Pod.UID)
		if pod == nil || now[key] == before[key] {
			continue
		}
		for _, reason := range d.withheld[key] {
			r.recorder.Eventf(pod, nil, corev1.EventTypeNormal, EventWithheld, actionOf(reason),
				"operation %s of id %s waits for rule %s (%s): %s", request.Type, request.ID, reason.Rule, reason.Code, reason.Message)
		}
		for _, reason := range d.warned[key] {
			r.recorder.Eventf(pod, nil, corev1.EventTypeWarning, EventWouldWithhold, actionOf(reason),
				"operation %s of id %s would wait for rule %s (%s), were it enforced: %s", request.Type, request.ID, reason.Rule, reason.Code, reason.Message)
		}
	}
}

// maxActionBytes is what the API server takes.
const maxActionBytes = 128

// actionOf tells reasons apart: events that differ in their note alone become a series,
// which goes on saying what the first one said.
func actionOf(reason policy.Reason) string {
	return bounded(fmt.Sprintf("%s/%s/%s", reason.Stage, reason.Code, reason.Rule), maxActionBytes)
}

// digest is what makes a set of reasons different from another one.
func digest(reasons []policy.Reason) string {
	parts := make([]string, len(reasons))
	for i, reason := range reasons {
		parts[i] = reason.Rule.String() + "=" + string(reason.Code)
	}
	return strings.Join(parts, ",")
}

// tellQuarantine records that a rule is not asked any more.
func (r *Reconciler) tellQuarantine(said *ruleDecision) {
	r.recorder.Eventf(said.object.view.Object, nil, corev1.EventTypeWarning, EventQuarantined, "Evaluate",
		"rule %s is not asked any more, and its pods wait: %s", said.prepared.spec.Name, said.prepared.quarantined.Message)
}
