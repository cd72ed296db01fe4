package podtransitionrule

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
)

// newBlockedPod returns a reason as an entry of status.blocked.
func newBlockedPod(request rule.Request, reason rule.Reason) appsv1alpha1.BlockedPod {
	blocked := appsv1alpha1.BlockedPod{
		Name: request.Pod.Name, Stage: request.Stage, ID: request.ID,
		Rule: reason.Rule.String(), Kind: string(reason.Kind), Reason: string(reason.Code), Message: reason.Message,
		BlockingPods: reason.BlockingPods, Since: timeOrNil(reason.Since), NextCheck: timeOrNil(reason.NextCheck),
	}
	if n := reason.Numbers; n != nil {
		blocked.Numbers = &appsv1alpha1.BlockedNumbers{Needed: int32(n.Needed), Have: int32(n.Have), Limit: int32(n.Limit)}
	}
	return blocked
}

// text returns a reason in one line, with its code.
func text(reason rule.Reason) string { return fmt.Sprintf("%s: %s", reason.Code, reason.Message) }

// rejectInfo returns the reasons of one PodTransitionRule in the order of rule names, in the form that
// deployed clients read.
func rejectInfo(reasons []rule.Reason) []appsv1alpha1.RejectInfo {
	var infos []appsv1alpha1.RejectInfo
	for _, reason := range reasons {
		infos = append(infos, appsv1alpha1.RejectInfo{RuleName: reason.Rule.Rule, Reason: text(reason)})
	}
	slices.SortFunc(infos, func(a, b appsv1alpha1.RejectInfo) int { return cmp.Compare(a.RuleName, b.RuleName) })
	return infos
}

// timeOrNil returns a time for a status; nil for the zero time.
func timeOrNil(at time.Time) *metav1.Time {
	if at.IsZero() {
		return nil
	}
	t := evaluation.StatusTime(at)
	return &t
}
