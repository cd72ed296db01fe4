package evaluation

import "github.com/podops-dev/podops/pkg/rule"

// lastDenials are the verdicts of a user's module on the requests that it withheld, or that were not reached,
// in the last round in which it was evaluated, by request key.
type lastDenials map[string]lastDenial

type lastDenial struct {
	verdict rule.Verdict

	// missed is the number of successive rounds without time to evaluate the rule.
	missed int
}

// take adds the verdict of a round and returns the verdict that counts. A request that was not reached stays
// denied as it was: no request passes because of an old verdict.
func (r lastDenials) take(key string, verdict rule.Verdict, before lastDenials) rule.Verdict {
	switch {
	case verdict.Would == rule.CodeNotReached:
		r[key] = lastDenial{verdict: verdict, missed: before[key].missed + 1}
	case verdict.Code == rule.CodeNotReached:
		last, known := before[key]
		if known {
			verdict = last.verdict
		}
		r[key] = lastDenial{verdict: verdict, missed: last.missed + 1}
	case verdict.Outcome != rule.Passed:
		r[key] = lastDenial{verdict: verdict}
	}
	return verdict
}
