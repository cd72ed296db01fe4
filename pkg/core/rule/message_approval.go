package rule

import (
	"fmt"
	"slices"
	"strings"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

// maxNamedApprovers bounds the users that a message names.
const maxNamedApprovers = 5

// explainApproval returns how many users have approved a revision, and who: the newest number of each round.
func explainApproval(rule *appsv1alpha1.ApprovalRule, approval *Approval) string {
	switch {
	case rule == nil || approval == nil || approval.Workload == "":
		return "the pod belongs to no Deployment, StatefulSet or DaemonSet, so it has no revision that users can approve"
	case approval.Revision == "":
		return fmt.Sprintf("the controller of %s has not processed its pod template yet", approval.Workload)
	case len(approval.DeniedBy) > 0:
		return withMessage(fmt.Sprintf("revision %.12s of %s is denied by %s",
			approval.Revision, approval.Workload, namedUsers(approval.DeniedBy)), approval.Denial)
	}
	counted, needed := CountApprovals(*rule, *approval)
	note := ""
	switch {
	case rule.AllowAuthor:
	case approval.Author == "":
		note = "; its author is not known, so one approval more is required"
	case len(counted) < len(approval.ApprovedBy):
		note = fmt.Sprintf("; the approval of its author %s does not count", namedUsers([]string{approval.Author}))
	}
	by := ""
	if len(counted) > 0 {
		by = fmt.Sprintf(" (%s)", namedUsers(counted))
	}
	return fmt.Sprintf("revision %.12s of %s has %d of %d approvals%s%s", approval.Revision, approval.Workload, len(counted), needed, by, note)
}

// CountApprovals returns the users whose approvals count for a rule, and how many it requires. Any of them may be the
// author while the author is not known, so one more is required.
func CountApprovals(rule appsv1alpha1.ApprovalRule, approval Approval) (counted []string, needed int) {
	needed = max(1, int(rule.MinApprovals))
	switch {
	case rule.AllowAuthor:
		return approval.ApprovedBy, needed
	case approval.Author == "":
		return approval.ApprovedBy, needed + 1
	default:
		return slices.DeleteFunc(slices.Clone(approval.ApprovedBy), func(user string) bool { return user == approval.Author }), needed
	}
}

// namedUsers returns the first users in one line, and how many more there are.
func namedUsers(users []string) string {
	names := text.Line(strings.Join(users[:min(len(users), maxNamedApprovers)], ", "), MaxMessageBytes)
	if more := len(users) - maxNamedApprovers; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return names
}
