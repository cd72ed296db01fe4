package podtransitionrule

import "github.com/podops-dev/podops/pkg/rule"

// refusals are the verdicts of a user's module on the requests that it held back, or that were not
// reached, in the last round in which it was evaluated, by request key.
type lastDenials map[string]lastDenial

type lastDenial struct {
	verdict rule.Verdict

	// missed is in how many rounds in a row there was no time to ask.
	missed int
}

// take notes the verdict of a round and returns the one to go by. One that was not
// reached stays refused as it was: nothing is ever passed on an old answer.
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
