package evaluation

import (
	"fmt"
	"slices"
	"time"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"k8s.io/apimachinery/pkg/types"
)

// holdRetired withholds the requests that a rule might have denied whose PodTransitionRule was deleted a
// moment ago. A PodTransitionRule that is deleted and created again must not let pods pass in between.
func (w *evaluating) holdRetired(snapshot Snapshot, now time.Time) {
	for _, retired := range snapshot.Retired {
		for _, request := range snapshot.Waiting {
			name := retired.Holds(request)
			if name == "" {
				continue
			}
			if exception, text := w.exceptions.exceptionFor(nil, request); exception != "" {
				id := rule.RuleID{Ruleset: types.NamespacedName{Namespace: snapshot.Namespace, Name: retired.Name}, Rule: name}
				w.waive(w.turn, request, rule.Waiver{Rule: id, Code: rule.CodeRuleDeleted, Exception: exception, Reason: text})
				continue
			}
			key := request.Key()
			w.withheld[key] = append(w.withheld[key], reasonOfRetired(snapshot.Namespace, retired, name, request))
			slices.SortFunc(w.withheld[key], byRank)
			w.retryIn(max(retired.Until.Sub(now), time.Millisecond))
		}
	}
}

func reasonOfRetired(namespace string, retired podindex.RetiredRule, name string, request rule.Request) rule.Reason {
	return rule.Reason{
		Rule:  rule.RuleID{Ruleset: types.NamespacedName{Namespace: namespace, Name: retired.Name}, Rule: name},
		Stage: request.Stage, Code: rule.CodeRuleDeleted, Since: request.Since, NextCheck: retired.Until,
		Message: fmt.Sprintf("PodTransitionRule %s was deleted; the pods that it selected wait for %s, in case one of the same name takes its place",
			retired.Name, podindex.RetiredFor),
	}
}
