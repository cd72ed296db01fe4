package evaluation

import (
	"testing"

	"github.com/podops-dev/podops/pkg/rule"
	"github.com/podops-dev/podops/pkg/rule/memo"
)

// TestVerdictsOfAFallbackAreNoDenialsOfTheModule shows that a request which is not reached once a
// quarantine is lifted is not reported as denied by the module.
func TestVerdictsOfAFallbackAreNoDenialsOfTheModule(t *testing.T) {
	for name, tc := range map[string]struct {
		stopped bool
		want    int
	}{
		"the module":   {want: 1},
		"its fallback": {stopped: true},
	} {
		t.Run(name, func(t *testing.T) {
			recalled := newRecollection()
			run := &moduleRun{
				work: &ruleWork{Rule: &Rule{prepared: &preparedRule{}, ruleset: &Ruleset{}}, recalled: recalled},
				memo: memo.New(), stopped: tc.stopped,
				requests: []rule.Request{{Pod: &rule.PodFact{UID: "u"}, ID: "a"}}, verdicts: []rule.Verdict{{Code: rule.CodeNotAllowed}},
			}
			run.close()
			if got := len(recalled.lastDenials); got != tc.want {
				t.Errorf("%d denials are remembered, want %d", got, tc.want)
			}
		})
	}
}
