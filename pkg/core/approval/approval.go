// Package approval decides which users have approved the revision of a workload. It is pure: values in, values out.
package approval

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

const (
	// maxNames bounds the users of one decision that rules see: a rule requires 10 at most.
	maxNames = 32

	// maxUserBytes bounds the name of an approver, as in the CRD.
	maxUserBytes = 256

	// stampKey is the annotation of objects in memory with their revision.
	stampKey = "podtransitionrule.kusionstack.io/template-revision"

	// maxAuthors bounds the changes of a template whose users are known. Kubernetes keeps 10 ReplicaSets by default.
	maxAuthors = 32

	// shownBytes is the length of a revision in messages.
	shownBytes = 12
)

// Revision returns the SHA-256 hash of a pod template, in hexadecimal: a Deployment and the ReplicaSet that its
// controller makes from it have the same. Fields that this version of Kubernetes' API types does not have are no part of it.
func Revision(template *corev1.PodTemplateSpec) string {
	if _, hashed := template.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; hashed {
		template = &corev1.PodTemplateSpec{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		template.Labels = maps.Clone(template.Labels)
		delete(template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	}
	encoded, err := json.Marshal(template)
	if err != nil {
		return "" // a template that was decoded from JSON can be encoded
	}
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:])
}

// Short returns a revision as messages show it.
func Short(revision string) string { return revision[:min(len(revision), shownBytes)] }

// Template returns the pod template of a workload; nil for an object of another kind.
func Template(object metav1.Object) *corev1.PodTemplateSpec {
	switch o := object.(type) {
	case *appsv1.ReplicaSet:
		return &o.Spec.Template
	case *appsv1.Deployment:
		return &o.Spec.Template
	case *appsv1.StatefulSet:
		return &o.Spec.Template
	case *appsv1.DaemonSet:
		return &o.Spec.Template
	default:
		return nil
	}
}

// Stamp records the revision of a workload whose pods are under PodOps in an annotation of the object in memory, from which
// Stamped reads it, and keeps the author of this revision alone: caches drop the template. No stored object has the annotation.
func Stamp(object metav1.Object) {
	annotations := object.GetAnnotations()
	delete(annotations, stampKey)
	template := Template(object)
	if template == nil || !appsv1alpha1.IsControlled(template.Labels) {
		return
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	revision := Revision(template)
	annotations[stampKey] = revision
	if author := Author(annotations, revision); author != "" {
		annotations[appsv1alpha1.TemplateAuthorAnnotationKey] = revision + " " + author
	}
	object.SetAnnotations(annotations)
}

// Annotations returns the annotations that Stamp writes.
func Annotations() []string { return []string{stampKey, appsv1alpha1.TemplateAuthorAnnotationKey} }

// Stamped returns the revision that Stamp recorded; empty without one.
func Stamped(object metav1.Object) string {
	return object.GetAnnotations()[stampKey]
}

// AuthorAnnotation returns the value of the annotation template-author after a user has written a revision: a line for each change
// of the template, oldest first. Lines stay, since `kubectl rollout undo` copies the annotations that a ReplicaSet had. A
// user whose name is longer than that of any approver gets no line.
func AuthorAnnotation(known, revision, user string) string {
	line := revision + " " + user
	lines := strings.Split(known, "\n")
	switch {
	case known == "":
		lines = nil
	case lines[len(lines)-1] == line:
		return known
	}
	if len(user) <= maxUserBytes {
		lines = append(lines, line)
	}
	return strings.Join(lines[max(0, len(lines)-maxAuthors):], "\n")
}

// Author returns the user who last wrote a revision of a workload, from its annotations; empty if that is not recorded.
func Author(annotations map[string]string, revision string) string {
	if revision == "" {
		return ""
	}
	for _, line := range slices.Backward(strings.Split(annotations[appsv1alpha1.TemplateAuthorAnnotationKey], "\n")) {
		if recorded, user, _ := strings.Cut(line, " "); recorded == revision {
			return user
		}
	}
	return ""
}

// Workload is a workload with the decisions about it.
type Workload struct {
	Kind, Name string

	// Revision is the revision that its pods are replaced by; empty while it is not known.
	Revision string

	// Hash is the hash that its controller gives pods of this revision (rule.Revision.Current); empty where no status has it.
	Hash string

	// Author is who wrote the revision; empty if that is not known.
	Author string

	// Decisions are about any of its revisions.
	Decisions []*appsv1alpha1.PodOperationApproval
}

// Facts returns what rules read at a time, for pods of the revision and for all others. The two share everything else.
func (w Workload) Facts(now time.Time) (current, other *rule.Approval) {
	facts := rule.Approval{Workload: w.Kind + " " + w.Name, Revision: w.Revision, Author: w.Author}
	for _, decision := range w.newest(now) {
		if expires := decision.Spec.ExpiresAt; expires != nil && (facts.Next.IsZero() || expires.Time.Before(facts.Next)) {
			facts.Next = expires.Time
		}
		if decision.Spec.Decision == appsv1alpha1.ApprovalApprove {
			facts.Reasons = withReason(facts.Reasons, decision.Spec)
			facts.ApprovedBy = withName(facts.ApprovedBy, decision.Spec.Approver)
			continue
		}
		if len(facts.DeniedBy) == 0 {
			facts.Denial = text.Line(decision.Spec.Reason, rule.MaxMessageBytes)
		}
		facts.DeniedBy = withName(facts.DeniedBy, decision.Spec.Approver)
	}
	same := facts
	same.Current = true
	return &same, &facts
}

// newest returns the newest decision of each user about the revision that has not expired, sorted by user.
func (w Workload) newest(now time.Time) []*appsv1alpha1.PodOperationApproval {
	if w.Revision == "" {
		return nil
	}
	byUser := map[string]*appsv1alpha1.PodOperationApproval{}
	for _, decision := range w.Decisions {
		expires := decision.Spec.ExpiresAt
		if decision.Spec.Revision != w.Revision || expires != nil && !now.Before(expires.Time) {
			continue
		}
		if known := byUser[decision.Spec.Approver]; known == nil || isNewer(decision, known) {
			byUser[decision.Spec.Approver] = decision
		}
	}
	return slices.SortedFunc(maps.Values(byUser), func(a, b *appsv1alpha1.PodOperationApproval) int {
		return strings.Compare(a.Spec.Approver, b.Spec.Approver)
	})
}

// isNewer reports whether a decision replaces another decision by the same user. Times have seconds: of two decisions in the same
// second, Deny counts.
func isNewer(decision, known *appsv1alpha1.PodOperationApproval) bool {
	return cmp.Or(decision.CreationTimestamp.Compare(known.CreationTimestamp.Time),
		strings.Compare(string(decision.Spec.Decision), string(known.Spec.Decision)), strings.Compare(decision.Name, known.Name)) > 0
}

// withReason appends the reason of a decision, after its user.
func withReason(reasons string, decision appsv1alpha1.PodOperationApprovalSpec) string {
	if decision.Reason == "" {
		return reasons
	}
	if reasons != "" {
		reasons += "; "
	}
	return text.Line(reasons+decision.Approver+": "+decision.Reason, rule.MaxMessageBytes)
}

// withName appends a name, up to maxNames.
func withName(names []string, name string) []string {
	if len(names) == maxNames {
		return names
	}
	return append(names, name)
}
