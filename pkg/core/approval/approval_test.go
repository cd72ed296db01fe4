package approval_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/approval"
	"github.com/podops-dev/podops/pkg/core/rule"
)

func template(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web", appsv1alpha1.ControlLabelKey: "true"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: image}}},
	}
}

func TestRevisionIsThatOfTheTemplate(t *testing.T) {
	deployed, other := template("web:v1"), template("web:v2")
	replicated := template("web:v1")
	replicated.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = "6d6d9b8567"
	if approval.Revision(&deployed) != approval.Revision(&replicated) {
		t.Error("a Deployment and its ReplicaSet have different revisions")
	}
	if approval.Revision(&deployed) == approval.Revision(&other) {
		t.Error("two images have the same revision")
	}
	if _, kept := replicated.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; !kept {
		t.Error("the template was changed")
	}
	if got := len(approval.Revision(&deployed)); got != 64 {
		t.Errorf("want 64 characters, got %d", got)
	}
}

func TestStampIsForWorkloadsOfControlledPods(t *testing.T) {
	controlled := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: template("web:v1")}}
	approval.Stamp(controlled)
	if want, got := approval.Revision(&controlled.Spec.Template), approval.Stamped(controlled); got != want {
		t.Errorf("want %s, got %s", want, got)
	}
	authored := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: template("web:v1")}}
	revision := approval.Revision(&authored.Spec.Template)
	authored.Annotations = map[string]string{appsv1alpha1.TemplateAuthorAnnotationKey: revision + " carol\n" + strings.Repeat("b", 64) + " dan"}
	if approval.Stamp(authored); authored.Annotations[appsv1alpha1.TemplateAuthorAnnotationKey] != revision+" carol" {
		t.Errorf("annotations %v", authored.Annotations)
	}
	forged := map[string]string{"podtransitionrule.kusionstack.io/template-revision": strings.Repeat("a", 64)}
	other := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Annotations: forged}}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"podtransitionrule.kusionstack.io/template-revision": "a"}}}
	for _, object := range []metav1.Object{other, job} {
		if approval.Stamp(object); approval.Stamped(object) != "" {
			t.Errorf("%T has the revision that a user wrote", object)
		}
	}
}

func TestAuthorIsThatOfTheRevision(t *testing.T) {
	value := ""
	for _, change := range [][2]string{{"aa", "carol"}, {"ab", "a user with spaces"}, {"aa", "bob"}, {"aa", "bob"}} {
		value = approval.AuthorAnnotation(value, change[0], change[1])
	}
	if want := "aa carol\nab a user with spaces\naa bob"; value != want {
		t.Errorf("want %q, got %q", want, value)
	}
	annotations := map[string]string{appsv1alpha1.TemplateAuthorAnnotationKey: value}
	for revision, want := range map[string]string{"aa": "bob", "ab": "a user with spaces", "ac": "", "": ""} {
		if got := approval.Author(annotations, revision); got != want {
			t.Errorf("revision %q: want %q, got %q", revision, want, got)
		}
	}
	if got := approval.AuthorAnnotation("aa carol", "ab", strings.Repeat("u", 257)); got != "aa carol" {
		t.Errorf("a user who can be no approver is recorded: %q", got)
	}
	for range 20 {
		value = approval.AuthorAnnotation(approval.AuthorAnnotation(value, "aa", "carol"), "ab", "carol")
	}
	if got := strings.Count(value, "\n") + 1; got != 32 {
		t.Errorf("got %d lines", got)
	}
}

func TestFacts(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	decision := func(name, user string, what appsv1alpha1.ApprovalDecision, seconds int) *appsv1alpha1.PodOperationApproval {
		return &appsv1alpha1.PodOperationApproval{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(at(seconds))},
			Spec:       appsv1alpha1.PodOperationApprovalSpec{Revision: "aa", Decision: what, Approver: user, Reason: "why\nso"},
		}
	}
	const approve, deny = appsv1alpha1.ApprovalApprove, appsv1alpha1.ApprovalDeny
	until := func(one *appsv1alpha1.PodOperationApproval, seconds int) *appsv1alpha1.PodOperationApproval {
		one.Spec.ExpiresAt = new(metav1.NewTime(at(seconds)))
		return one
	}
	other := decision("other", "erin", approve, -9)
	other.Spec.Revision = "ab"
	for name, tc := range map[string]struct {
		revision  string
		decisions []*appsv1alpha1.PodOperationApproval
		want      rule.Approval
	}{
		"no decision": {revision: "aa"},
		"users in order": {
			revision: "aa", decisions: []*appsv1alpha1.PodOperationApproval{decision("1", "bob", approve, -5), decision("2", "alice", approve, -4)},
			want: rule.Approval{ApprovedBy: []string{"alice", "bob"}, Reasons: "alice: why so; bob: why so"},
		},
		"another revision": {revision: "aa", decisions: []*appsv1alpha1.PodOperationApproval{other}},
		"the newest of a user": {
			revision: "aa", decisions: []*appsv1alpha1.PodOperationApproval{decision("1", "bob", approve, -4), decision("2", "bob", deny, -5)},
			want: rule.Approval{ApprovedBy: []string{"bob"}, Reasons: "bob: why so"},
		},
		"both in a second": {
			revision: "aa", decisions: []*appsv1alpha1.PodOperationApproval{decision("1", "bob", deny, -5), decision("2", "bob", approve, -5)},
			want: rule.Approval{DeniedBy: []string{"bob"}, Denial: "why so"},
		},
		"expired": {
			revision: "aa", decisions: []*appsv1alpha1.PodOperationApproval{until(decision("1", "bob", approve, -5), 0)},
		},
		"the older decision once the newest expires": {
			revision:  "aa",
			decisions: []*appsv1alpha1.PodOperationApproval{until(decision("1", "bob", deny, -4), -1), decision("2", "bob", approve, -5)},
			want:      rule.Approval{ApprovedBy: []string{"bob"}, Reasons: "bob: why so"},
		},
		"the next end": {
			revision: "aa",
			decisions: []*appsv1alpha1.PodOperationApproval{
				until(decision("1", "bob", approve, -5), 20), until(decision("2", "alice", deny, -5), 10),
			},
			want: rule.Approval{ApprovedBy: []string{"bob"}, Reasons: "bob: why so", DeniedBy: []string{"alice"}, Denial: "why so", Next: at(10)},
		},
		"no known revision": {decisions: []*appsv1alpha1.PodOperationApproval{decision("1", "bob", approve, -5)}},
	} {
		t.Run(name, func(t *testing.T) {
			workload := approval.Workload{Kind: "Deployment", Name: "web", Revision: tc.revision, Author: "carol", Decisions: tc.decisions}
			current, got := workload.Facts(now)
			tc.want.Workload, tc.want.Revision, tc.want.Author = "Deployment web", tc.revision, "carol"
			if diff := cmp.Diff(&tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			tc.want.Current = true
			if !current.Equals(&tc.want) {
				t.Errorf("for pods of the revision: %+v", current)
			}
		})
	}
}

func TestFactsAreBounded(t *testing.T) {
	var decisions []*appsv1alpha1.PodOperationApproval
	for i := range 100 {
		decisions = append(decisions, &appsv1alpha1.PodOperationApproval{Spec: appsv1alpha1.PodOperationApprovalSpec{
			Revision: "aa", Decision: appsv1alpha1.ApprovalApprove, Approver: strings.Repeat("u", i+1),
		}})
	}
	_, got := approval.Workload{Revision: "aa", Decisions: decisions}.Facts(time.Now())
	if len(got.ApprovedBy) != 32 {
		t.Errorf("got %d users", len(got.ApprovedBy))
	}
}
