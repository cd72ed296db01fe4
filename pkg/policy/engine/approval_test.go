package engine_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/pkg/policy"
	"github.com/podops-dev/podops/pkg/policy/engine"
)

// One service, seen by requests at every point of a call.
func TestWebhookRulesDecideFromTasks(t *testing.T) {
	failed := func(class string, due bool) policy.Task {
		return policy.Task{State: policy.TaskFailed, Class: class, RetryDue: due, Message: "what it said"}
	}
	passed := policy.Verdict{Outcome: policy.Passed}
	for name, tc := range map[string]struct {
		task         policy.Task
		fail, ignore policy.Verdict
	}{
		"not called":            {policy.Task{}, policy.Verdict{Code: policy.CodeWebhookPending, Call: true}, policy.Verdict{Code: policy.CodeWebhookPending, Call: true}},
		"called":                {policy.Task{State: policy.TaskCalling}, policy.Verdict{Code: policy.CodeWebhookPending}, policy.Verdict{Code: policy.CodeWebhookPending}},
		"polled":                {policy.Task{State: policy.TaskPolling}, policy.Verdict{Code: policy.CodeWebhookProcessing}, policy.Verdict{Code: policy.CodeWebhookProcessing}},
		"approved":              {policy.Task{State: policy.TaskApproved}, passed, passed},
		"rejected":              {failed("Rejected", false), policy.Verdict{Code: policy.CodeWebhookRejected}, policy.Verdict{Code: policy.CodeWebhookRejected}},
		"rejected a while ago":  {failed("Rejected", true), policy.Verdict{Code: policy.CodeWebhookRejected, Call: true}, policy.Verdict{Code: policy.CodeWebhookRejected, Call: true}},
		"never finished":        {failed("Expired", false), policy.Verdict{Code: policy.CodeWebhookRejected}, passed},
		"no connection":         {failed("Refused", false), policy.Verdict{Code: policy.CodeWebhookFailed}, passed},
		"no connection earlier": {failed("Refused", true), policy.Verdict{Code: policy.CodeWebhookFailed, Call: true}, passed},
		"interrupted":           {failed("Interrupted", false), policy.Verdict{Code: policy.CodeWebhookFailed}, policy.Verdict{Code: policy.CodeWebhookFailed}},
		"a state of no meaning": {policy.Task{State: "approved"}, policy.Verdict{Code: policy.CodeUndefined}, policy.Verdict{Code: policy.CodeUndefined}},
	} {
		t.Run(name, func(t *testing.T) {
			asked := request(0, true)
			asked.Task = tc.task
			got := []policy.Verdict{}
			for _, program := range []*engine.Program{prepared(t, approval("Fail")), prepared(t, approval("Ignore"))} {
				result, err := program.Evaluate(t.Context(), program.Stage(), policy.Surroundings{}, []policy.Request{asked})
				if err != nil {
					t.Fatal(err)
				}
				if result.Room != nil {
					t.Error("a webhook has room")
				}
				got = append(got, result.Verdicts[asked.Key()])
			}
			if diff := cmp.Diff([]policy.Verdict{tc.fail, tc.ignore}, got); diff != "" {
				t.Errorf("verdicts with Fail and Ignore (-want +got):\n%s", diff)
			}
		})
	}
}
