package rule_test

import (
	"testing"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
)

func TestExplainApproval(t *testing.T) {
	revision := "3fa9c1d2e4b5aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	about := func(author string, approvedBy ...string) *rule.Approval {
		return &rule.Approval{Workload: "Deployment web", Revision: revision, Author: author, ApprovedBy: approvedBy}
	}
	denied := about("carol", "alice")
	denied.DeniedBy, denied.Denial = []string{"dan"}, "not on\nFriday"
	for name, tc := range map[string]struct {
		code        rule.Code
		allowAuthor bool
		approval    *rule.Approval
		want        string
	}{
		"no approval":              {approval: about("carol"), want: "revision 3fa9c1d2e4b5 of Deployment web has 0 of 2 approvals"},
		"too few":                  {approval: about("carol", "alice"), want: "revision 3fa9c1d2e4b5 of Deployment web has 1 of 2 approvals (alice)"},
		"the author":               {approval: about("carol", "alice", "carol"), want: "revision 3fa9c1d2e4b5 of Deployment web has 1 of 2 approvals (alice); the approval of its author carol does not count"},
		"author allowed":           {allowAuthor: true, approval: about("carol", "carol"), want: "revision 3fa9c1d2e4b5 of Deployment web has 1 of 2 approvals (carol)"},
		"author unknown":           {approval: about("", "alice", "bob"), want: "revision 3fa9c1d2e4b5 of Deployment web has 2 of 3 approvals (alice, bob); its author is not known, so one approval more is required"},
		"many":                     {approval: about("z", "a", "b", "c", "d", "e", "f"), want: "revision 3fa9c1d2e4b5 of Deployment web has 6 of 2 approvals (a, b, c, d, e and 1 more)"},
		"a name with a line break": {approval: about("z", "a\nb"), want: "revision 3fa9c1d2e4b5 of Deployment web has 1 of 2 approvals (a b)"},
		"denied":                   {code: rule.CodeRevisionDenied, approval: denied, want: "revision 3fa9c1d2e4b5 of Deployment web is denied by dan: not on Friday"},
		"no revision": {
			approval: &rule.Approval{Workload: "StatefulSet db"}, want: "the controller of StatefulSet db has not processed its pod template yet",
		},
		"no workload": {
			approval: &rule.Approval{}, want: "the pod belongs to no Deployment, StatefulSet or DaemonSet, so it has no revision that users can approve",
		},
	} {
		t.Run(name, func(t *testing.T) {
			code := tc.code
			if code == "" {
				code = rule.CodeNotApproved
			}
			entry := appsv1alpha1.TransitionRule{Name: "approval", Approval: &appsv1alpha1.ApprovalRule{MinApprovals: 2, AllowAuthor: tc.allowAuthor}}
			if got := rule.Explain(code, entry, rule.Request{Approval: tc.approval}, nil); got != tc.want {
				t.Errorf("want %q, got %q", tc.want, got)
			}
		})
	}
}
