package podtransitionrule

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/podindex"
	"github.com/podops-dev/podops/pkg/rule"
)

// holdRetired withholds the requests that a rule might have refused which was deleted a
// moment ago. A rule that is deleted and created again must not let pods through in
// between.
func (d *decision) holdRetired(view podindex.Snapshot, now time.Time) {
	for _, retired := range view.Retired {
		for _, request := range view.Waiting {
			rule := retired.Holds(request)
			if rule == "" {
				continue
			}
			key := request.Key()
			d.withheld[key] = append(d.withheld[key], reasonOfRetired(view.Namespace, retired, rule, request))
			slices.SortFunc(d.withheld[key], byRank)
			d.retry = minDelay(d.retry, max(retired.Until.Sub(now), time.Millisecond))
		}
	}
}

func reasonOfRetired(namespace string, retired podindex.RetiredRule, name string, request rule.Request) rule.Reason {
	return rule.Reason{
		Rule:  rule.RuleID{Object: types.NamespacedName{Namespace: namespace, Name: retired.Name}, Rule: name},
		Stage: request.Stage, Code: rule.CodeRuleDeleted, Since: request.Since, NextCheck: retired.Until,
		Message: fmt.Sprintf("PodTransitionRule %s was deleted; the pods that it selected wait for %s, in case one of the same name takes its place",
			retired.Name, podindex.RetiredFor),
	}
}
