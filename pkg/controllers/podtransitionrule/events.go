package podtransitionrule

import (
	"encoding/json"
	"fmt"
	"hash"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	printable "github.com/podops-dev/podops/pkg/runtime/text"
)

// Event reasons. They never change.
const (
	// EventWithheld reports that rules have withheld the pod for a while. It names the first rule.
	EventWithheld = "Withheld"

	// EventWouldWithhold reports that the pod passed although a rule with enforcement Warn would have withheld it.
	EventWouldWithhold = "WouldWithhold"

	// EventRolloutHeld, on a Deployment, reports that its pods wait for their deletion.
	EventRolloutHeld = "RolloutHeld"

	// EventRevisionApproved, on a workload, reports which users have approved the revision that replaces its pods.
	EventRevisionApproved = "RevisionApproved"

	// EventBreakGlass: the pod passed rules that withhold it, because of a break-glass annotation.
	EventBreakGlass = "BreakGlass"

	// EventExempt: the pod passed a rule that withholds it, because the rule exempts its revision.
	EventExempt = "Exempt"

	// EventHoldExpired: the pod was held for the maximum time, and its operation was cancelled, or it
	// passed the rules that withhold it.
	EventHoldExpired = "HoldExpired"

	// EventQuarantined, on the PodTransitionRule: a rule is not evaluated any more.
	EventQuarantined = "Quarantined"

	// EventUnknownPods, on the PodTransitionRule, reports an answer that names pods which the call did
	// not contain.
	EventUnknownPods = "UnknownPods"
)

const (
	// withheldInterval is the least time between two events Withheld of one pod.
	withheldInterval = time.Minute

	// rolloutOver is the time without a waiting pod of a Deployment after which a rollout has ended. It is
	// longer than a rollout waits for its new pods between two steps.
	rolloutOver = 2 * time.Minute
)

// isNews reports whether the annotations of a pod do not contain a reason. The annotations survive a
// restart of the manager, in contrast to its memory of events.
func isNews(annotations map[string]string, reason rule.Reason) bool {
	var detail appsv1alpha1.Detail
	text := annotations[appsv1alpha1.DetailAnnotationPrefix+"/"+reason.Rule.Ruleset.Name]
	if text == "" || json.Unmarshal([]byte(text), &detail) != nil {
		return true
	}
	return !slices.ContainsFunc(detail.RejectInfo, func(info appsv1alpha1.RejectInfo) bool {
		return info.RuleName == reason.Rule.Rule && strings.HasPrefix(info.Reason, string(reason.Code)+": ")
	})
}

// recordWithheld records the first reason for which a pod waits.
func (r *Reconciler) recordWithheld(pod *withheldPod) {
	reason := pod.first
	r.recorder.Eventf(pod.object, nil, eventTypeFor(reason.Code), EventWithheld, eventAction(reason),
		"%s", rule.Waits(lifecycle.DescribeOperation(pod.request.Type, pod.request.ID), reason.Rule.String(), reason.Message, reason.Code))
}

// eventTypeFor returns Warning for a rule or service that needs an edit or a repair, and Normal for a rule
// that denies the pod or has no capacity for it yet.
func eventTypeFor(code rule.Code) string {
	switch code {
	case rule.CodeWebhookFailed, rule.CodeTimeout, rule.CodeInvalidParameters:
		return corev1.EventTypeWarning
	default:
		if rule.Rank(code) == 0 {
			return corev1.EventTypeWarning
		}
		return corev1.EventTypeNormal
	}
}

// recordWarnings records that a request passed although rules with enforcement Warn would
// have withheld it: the first of them, and how many more.
func (r *Reconciler) recordWarnings(pod *corev1.Pod, request rule.Request, warned []rule.Reason) {
	if len(warned) == 0 {
		return
	}
	more := ""
	if len(warned) > 1 {
		more = fmt.Sprintf(" (and %d more rules)", len(warned)-1)
	}
	reason := warned[0]
	r.recorder.Eventf(pod, nil, corev1.EventTypeWarning, EventWouldWithhold, eventAction(reason),
		"%s would wait for rule %s if it were enforced: %s (%s)%s",
		lifecycle.DescribeOperation(request.Type, request.ID), reason.Rule, reason.Message, reason.Code, more)
}

// rollout is a Deployment of which pods wait to be deleted.
type rollout struct {
	owner rule.Owner
	pods  int
	first *withheldPod

	// known reports whether a pod has an annotation that explains why it waits, so that the event was recorded.
	known bool
}

// groupRollouts groups the pods that wait to be deleted by their Deployments.
func groupRollouts(pods []*withheldPod) map[string]*rollout {
	rollouts := map[string]*rollout{}
	for _, pod := range pods {
		owner := pod.request.Pod.Owner
		if owner.Kind != "Deployment" || pod.request.ID != appsv1alpha1.PodDeleteID || pod.request.Stage != appsv1alpha1.StagePreCheck {
			continue
		}
		held, ok := rollouts[string(owner.UID)]
		if !ok {
			held = &rollout{owner: owner, first: pod}
			rollouts[string(owner.UID)] = held
		}
		held.pods++
		held.known = held.known || len(deferreddelete.Verdicts[*string](pod.object.Annotations)) > 0
	}
	return rollouts
}

// recordRollout records that a Deployment waits for its rules.
func (r *Reconciler) recordRollout(namespace string, held *rollout) {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: held.owner.Name, UID: held.owner.UID}}
	reason, pods := held.first.first, "1 pod waits"
	if held.pods > 1 {
		pods = fmt.Sprintf("%d pods wait", held.pods)
	}
	r.recorder.Eventf(deployment, nil, eventTypeFor(reason.Code), EventRolloutHeld, eventAction(reason),
		"%s for deletion, the first for rule %s: %s (%s)", pods, reason.Rule, reason.Message, reason.Code)
}

const (
	// maxApproved bounds the workloads of a namespace whose event is remembered.
	maxApproved = 256

	// maxApproverBytes bounds the names of users in an event.
	maxApproverBytes = 256
)

// recordApproval records once for each revision of a workload who has approved it, as its first pod is permitted.
func (r *Reconciler) recordApproval(snapshot snapshot, request rule.Request, approval *rule.Approval) {
	owner, known := request.Pod.Owner, snapshot.state.approved
	if !approval.IsUsed() || request.Stage != appsv1alpha1.StagePreCheck || known[owner.UID] == approval.Revision {
		return
	}
	if known == nil || len(known) == maxApproved {
		known = map[types.UID]string{}
		snapshot.state.approved = known
	}
	known[owner.UID] = approval.Revision
	workload := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: owner.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: snapshot.Namespace, Name: owner.Name, UID: owner.UID},
	}
	reasons := ""
	if approval.Reasons != "" {
		reasons = " (" + approval.Reasons + ")"
	}
	r.recorder.Eventf(workload, nil, corev1.EventTypeNormal, EventRevisionApproved, "Approve", "revision %.12s replaces its pods, approved by %s%s",
		approval.Revision, printable.Line(strings.Join(approval.ApprovedBy, ", "), maxApproverBytes), reasons)
}

// maxActionBytes is the bound of the API server.
const maxActionBytes = 128

// eventAction returns the reason for programs: stage, code and rule.
func eventAction(reason rule.Reason) string {
	return printable.Prefix(fmt.Sprintf("%s/%s/%s", reason.Stage, reason.Code, reason.Rule), maxActionBytes)
}

// digest adds the rules and codes of a request's reasons to a hash.
func digest(hash hash.Hash64, reasons []rule.Reason) {
	for _, reason := range reasons {
		_, _ = hash.Write([]byte(reason.Rule.String() + "=" + string(reason.Code) + ",")) // never fails
	}
	_, _ = hash.Write([]byte(";"))
}

// recordQuarantine records that a rule is not evaluated any more.
func (r *Reconciler) recordQuarantine(eval *evaluation.Rule) {
	r.recorder.Eventf(eval.Object(), nil, corev1.EventTypeWarning, EventQuarantined, "Evaluate",
		"rule %s is not evaluated any more, and its pods wait: %s", eval.ID().Rule, eval.Quarantine().Message)
}
