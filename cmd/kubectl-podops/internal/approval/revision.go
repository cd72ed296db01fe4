package approval

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/approval"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/runtime/text"
	"github.com/podops-dev/podops/pkg/view/clusterstate"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/cluster"
)

// revision is the revision of a workload, what it changes, and what users have decided about it.
type revision struct {
	object    metav1.Object
	kind      cluster.Kind
	decisions []*appsv1alpha1.PodOperationApproval
	facts     *rule.Approval
	changes   []string
	rules     []string

	// replicaSet is the ReplicaSet of a Deployment that has the revision; nil without such a ReplicaSet.
	replicaSet *appsv1.ReplicaSet
}

// newRevision returns the revision of the pod template that a workload has now.
func newRevision(
	s *clusterstate.Snapshot, kind cluster.Kind, object metav1.Object, decisions []*appsv1alpha1.PodOperationApproval, now time.Time,
) revision {
	template := approval.Template(object)
	found := revision{object: object, kind: kind}
	workload := approval.Workload{Kind: string(kind), Name: object.GetName(), Revision: approval.Revision(template)}
	workload.Author = approval.Author(object.GetAnnotations(), workload.Revision)
	for _, decision := range decisions {
		if decision.Spec.Workload.Kind == workload.Kind && decision.Spec.Workload.Name == workload.Name {
			workload.Decisions = append(workload.Decisions, decision)
			if decision.Spec.Revision == workload.Revision {
				found.decisions = append(found.decisions, decision)
			}
		}
	}
	slices.SortFunc(found.decisions, func(a, b *appsv1alpha1.PodOperationApproval) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	_, found.facts = workload.Facts(now)
	for _, set := range s.ReplicaSets {
		if metav1.IsControlledBy(set, object) && approval.Revision(&set.Spec.Template) == workload.Revision {
			found.replicaSet = set
		}
	}
	found.changes = imageChanges(s, object, template)
	for _, ruleset := range s.Rules {
		found.rules = append(found.rules, needs(ruleset, template, found.facts)...)
	}
	return found
}

// owner returns the object with which a decision is deleted: what Kubernetes keeps of the revision, as long as the
// revisionHistoryLimit, or else the workload.
func (r revision) owner(ctx context.Context, reader client.Reader) metav1.OwnerReference {
	reference := func(kind string, object metav1.Object) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: kind, Name: object.GetName(), UID: object.GetUID()}
	}
	if r.replicaSet != nil {
		return reference(string(cluster.KindReplicaSet), r.replicaSet)
	}
	set, ok := r.object.(*appsv1.StatefulSet)
	if ok && set.Status.ObservedGeneration == set.Generation {
		stored := &appsv1.ControllerRevision{}
		if err := reader.Get(ctx, client.ObjectKey{Namespace: set.Namespace, Name: set.Status.UpdateRevision}, stored); err == nil {
			return reference("ControllerRevision", stored)
		}
	}
	return reference(string(r.kind), r.object)
}

// needs returns for each rule of kind approval that selects the pods of a template whether it lets the revision go on.
func needs(ruleset *appsv1alpha1.PodTransitionRule, template *corev1.PodTemplateSpec, facts *rule.Approval) []string {
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

// isOfInterest reports whether a rule requires approvals of the revision, or a user has decided about it.
func (r revision) isOfInterest() bool { return len(r.rules)+len(r.decisions) > 0 }

// title names the revision and its author.
func (r revision) title() string {
	author := r.facts.Author
	if author == "" {
		author = "a user that is not recorded"
	}
	return fmt.Sprintf("%s/%s, revision %s, written by %s", r.kind.Short(), r.object.GetName(), approval.Short(r.facts.Revision), author)
}

func (r revision) write(out io.Writer, now time.Time) error {
	lines := append([]string{}, r.changes...)
	lines = append(lines, r.rules...)
	for _, decision := range r.decisions {
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
			line += ": " + text.Line(decision.Spec.Reason, maxReason)
		}
		lines = append(lines, line)
	}
	_, err := fmt.Fprintf(out, "%s\n%s", text.Line(r.title(), maxTitle), indented(lines))
	return err
}

func indented(lines []string) string {
	var all strings.Builder
	for _, line := range lines {
		all.WriteString("  " + text.Line(line, maxTitle) + "\n")
	}
	return all.String()
}
