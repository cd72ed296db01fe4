// Package approvals shows the revisions of workloads that users decide about: what they change, what rules require, and what has been
// decided. It is pure: objects in, texts and objects out.
package approvals

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/approval"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/runtime/text"
	"github.com/podops-dev/podops/pkg/view/clusterstate"
)

const (
	// maxReasonBytes bounds a reason, as in the CRD, and maxLineBytes a line of text.
	maxReasonBytes, maxLineBytes = 256, 1024

	// shown is the format of times, in UTC.
	shown = "2006-01-02 15:04 MST"
)

// Revision is the pod template that a workload has now, with what users have decided about it.
type Revision struct {
	// Object is the workload, and Kind its kind.
	Object metav1.Object
	Kind   string

	// Facts are what rules read, for pods of other revisions.
	Facts *rule.Approval

	// Decisions are about this revision, oldest first.
	Decisions []*appsv1alpha1.PodOperationApproval

	// Changes are the images that it replaces, and Rules the approval rules that select its pods; a line for each.
	Changes, Rules []string

	// history is what Kubernetes keeps of the revision; nil if the snapshot does not have it.
	history *appsv1.ReplicaSet
}

// New returns the revision of a workload: a Deployment, StatefulSet or DaemonSet.
func New(
	s *clusterstate.Snapshot, kind string, object metav1.Object, decisions []*appsv1alpha1.PodOperationApproval, now time.Time,
) Revision {
	template := approval.Template(object)
	found := Revision{Object: object, Kind: kind}
	workload := approval.Workload{Kind: kind, Name: object.GetName(), Revision: approval.Revision(template)}
	workload.Author = approval.Author(object.GetAnnotations(), workload.Revision)
	for _, decision := range decisions {
		about := decision.Spec
		if about.Workload.Kind != kind || about.Workload.Name != workload.Name || about.Revision != workload.Revision {
			continue
		}
		found.Decisions = append(found.Decisions, decision)
	}
	workload.Decisions = found.Decisions
	slices.SortFunc(found.Decisions, func(a, b *appsv1alpha1.PodOperationApproval) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	_, found.Facts = workload.Facts(now)
	for _, set := range s.ReplicaSets {
		if metav1.IsControlledBy(set, object) && approval.Revision(&set.Spec.Template) == workload.Revision {
			found.history = set
		}
	}
	found.Changes = imageChanges(s, object, template)
	for _, ruleset := range s.Rules {
		found.Rules = append(found.Rules, requirements(ruleset, template, found.Facts)...)
	}
	return found
}

// requirements returns for each approval rule that selects the pods of a template whether it lets the revision go on.
func requirements(ruleset *appsv1alpha1.PodTransitionRule, template *corev1.PodTemplateSpec, facts *rule.Approval) []string {
	selector, err := metav1.LabelSelectorAsSelector(ruleset.Spec.Selector)
	if err != nil || !selector.Matches(labels.Set(template.Labels)) {
		return nil
	}
	var lines []string
	for i := range ruleset.Spec.Rules {
		entry := &ruleset.Spec.Rules[i]
		if entry.Approval == nil || entry.Disabled {
			continue
		}
		state := "approved"
		counted, needed := rule.CountApprovals(*entry.Approval, *facts)
		if len(facts.DeniedBy) > 0 || len(counted) < needed {
			state = "waits: " + rule.Explain(rule.CodeNotApproved, *entry, rule.Request{Approval: facts}, nil)
		}
		lines = append(lines, fmt.Sprintf("rule %s/%s: %s", ruleset.Name, entry.Name, state))
	}
	return lines
}

// imageChanges returns the images that the pods of a workload run and its template replaces.
func imageChanges(s *clusterstate.Snapshot, object metav1.Object, template *corev1.PodTemplateSpec) []string {
	wanted, pods := map[string]string{}, map[string]int{}
	for i := range template.Spec.Containers {
		wanted[template.Spec.Containers[i].Name] = template.Spec.Containers[i].Image
	}
	for _, pod := range s.Pods {
		if s.Owner(pod).UID != object.GetUID() {
			continue
		}
		for i := range pod.Spec.Containers {
			container := &pod.Spec.Containers[i]
			if image, ok := wanted[container.Name]; ok && image != container.Image {
				pods[fmt.Sprintf("container %s: %s -> %s", container.Name, container.Image, image)]++
			}
		}
	}
	changes := slices.Sorted(maps.Keys(pods))
	for i, change := range changes {
		changes[i] = fmt.Sprintf("%s (%s)", change, text.Count(pods[change], "pod"))
	}
	return changes
}

// IsOfInterest reports whether a rule requires approvals of the revision, or a user has decided about it.
func (r Revision) IsOfInterest() bool { return len(r.Rules)+len(r.Decisions) > 0 }

// Title names the workload, the revision and its author in one line.
func (r Revision) Title() string {
	author := cmp.Or(r.Facts.Author, "a user that is not recorded")
	title := fmt.Sprintf("%s/%s, revision %s, written by %s", strings.ToLower(r.Kind), r.Object.GetName(), approval.Short(r.Facts.Revision), author)
	return text.Line(title, maxLineBytes)
}

// Lines returns what the revision changes, what rules require, and the decisions of users.
func (r Revision) Lines(now time.Time) []string {
	lines := slices.Concat(r.Changes, r.Rules)
	for _, decision := range r.Decisions {
		line := fmt.Sprintf("%s by %s, %s ago", decision.Spec.Decision, decision.Spec.Approver,
			duration.HumanDuration(now.Sub(decision.CreationTimestamp.Time)))
		if expires := decision.Spec.ExpiresAt; expires != nil {
			state := "until "
			if !now.Before(expires.Time) {
				state = "expired "
			}
			line += ", " + state + expires.UTC().Format(shown)
		}
		if decision.Spec.Reason != "" {
			line += ": " + text.Line(decision.Spec.Reason, maxReasonBytes)
		}
		lines = append(lines, line)
	}
	for i, line := range lines {
		lines[i] = text.Line(line, maxLineBytes)
	}
	return lines
}

// NewDecision returns a decision of a user about the revision. It is deleted with the ReplicaSet that Kubernetes keeps of the
// revision, or with the workload.
func (r Revision) NewDecision(decision appsv1alpha1.ApprovalDecision, user, reason string) *appsv1alpha1.PodOperationApproval {
	owner := metav1.OwnerReference{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: r.Kind, Name: r.Object.GetName(), UID: r.Object.GetUID()}
	if r.history != nil {
		owner.Kind, owner.Name, owner.UID = "ReplicaSet", r.history.Name, r.history.UID
	}
	return &appsv1alpha1.PodOperationApproval{
		TypeMeta: metav1.TypeMeta{APIVersion: appsv1alpha1.GroupVersion().String(), Kind: "PodOperationApproval"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Object.GetNamespace(), GenerateName: r.Object.GetName() + "-", OwnerReferences: []metav1.OwnerReference{owner},
		},
		Spec: appsv1alpha1.PodOperationApprovalSpec{
			Workload: appsv1alpha1.ApprovalWorkload{Kind: r.Kind, Name: r.Object.GetName()},
			Revision: r.Facts.Revision, Decision: decision, Approver: user, Reason: strings.TrimSpace(reason),
		},
	}
}
