package podtransitionrule

import "github.com/podops-dev/podops/pkg/policy"

// refusals are what a rule said of the requests that it held back in the last round, by
// request key, for a rule whose verdicts hold for one round only.
type refusals map[string]refusal

type refusal struct {
	verdict policy.Verdict

	// missed is in how many rounds in a row there was no time to ask.
	missed int
}

// rank puts first who was not reached for the longest time.
func (r refusals) rank(request policy.Request) int { return -r[request.Key()].missed }

// take notes the verdict of a round and returns the one to go by. One that was not
// reached stays refused as it was: nothing is ever passed on an old answer.
func (r refusals) take(key string, verdict policy.Verdict, before refusals) policy.Verdict {
	switch {
	case verdict.Code == policy.CodeNotReached:
		last, known := before[key]
		if known {
			verdict = last.verdict
		}
		r[key] = refusal{verdict: verdict, missed: last.missed + 1}
	case verdict.Outcome != policy.Passed:
		r[key] = refusal{verdict: verdict}
	}
	return verdict
}

// unreached: somebody was not.
func (r refusals) unreached() bool {
	for _, one := range r {
		if one.missed > 0 {
			return true
		}
	}
	return false
}
