package opa_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

// TestWebhookRulesDecideFromTasks evaluates one rule for requests at every step of a call.
func TestWebhookRulesDecideFromTasks(t *testing.T) {
	failed := func(class string, due bool) rule.Task {
		return rule.Task{State: rule.TaskFailed, Class: class, RetryDue: due, Message: "the text of the service"}
	}
	answered := func(task rule.Task) rule.Task {
		task.Answered = true
		return task
	}
	passed := rule.Verdict{Outcome: rule.Passed}
	for name, tc := range map[string]struct {
		task         rule.Task
		fail, ignore rule.Verdict
	}{
		"not called":            {rule.Task{}, rule.Verdict{Code: rule.CodeWebhookPending, Call: true}, rule.Verdict{Code: rule.CodeWebhookPending, Call: true}},
		"called":                {rule.Task{State: rule.TaskCalling}, rule.Verdict{Code: rule.CodeWebhookPending}, rule.Verdict{Code: rule.CodeWebhookPending}},
		"polled":                {rule.Task{State: rule.TaskPolling}, rule.Verdict{Code: rule.CodeWebhookProcessing}, rule.Verdict{Code: rule.CodeWebhookProcessing}},
		"approved":              {rule.Task{State: rule.TaskApproved}, passed, passed},
		"rejected":              {failed("Rejected", false), rule.Verdict{Code: rule.CodeWebhookRejected}, rule.Verdict{Code: rule.CodeWebhookRejected}},
		"rejected a while ago":  {failed("Rejected", true), rule.Verdict{Code: rule.CodeWebhookRejected, Call: true}, rule.Verdict{Code: rule.CodeWebhookRejected, Call: true}},
		"never finished":        {answered(failed("Expired", false)), rule.Verdict{Code: rule.CodeWebhookRejected}, rule.Verdict{Code: rule.CodeWebhookRejected}},
		"a no before":           {answered(failed("Unreachable", false)), rule.Verdict{Code: rule.CodeWebhookFailed}, rule.Verdict{Code: rule.CodeWebhookFailed}},
		"no connection":         {failed("Refused", false), rule.Verdict{Code: rule.CodeWebhookFailed}, passed},
		"no connection earlier": {failed("Refused", true), rule.Verdict{Code: rule.CodeWebhookFailed, Call: true}, passed},
		"interrupted":           {failed("Interrupted", false), rule.Verdict{Code: rule.CodeWebhookFailed}, rule.Verdict{Code: rule.CodeWebhookFailed}},
		"a state of no meaning": {rule.Task{State: "approved"}, rule.Verdict{Code: rule.CodeUndefined}, rule.Verdict{Code: rule.CodeUndefined}},
	} {
		t.Run(name, func(t *testing.T) {
			pending := request(0, true)
			pending.Task = tc.task
			got := []rule.Verdict{}
			for _, program := range []*opa.Program{prepared(t, approval("Fail")), prepared(t, approval("Ignore"))} {
				result, err := program.Evaluate(t.Context(), program.Stage(), rule.Environment{}, []rule.Request{pending})
				if err != nil {
					t.Fatal(err)
				}
				if result.Capacity != nil {
					t.Error("a webhook has a capacity")
				}
				got = append(got, result.Verdicts[pending.Key()])
			}
			if diff := cmp.Diff([]rule.Verdict{tc.fail, tc.ignore}, got); diff != "" {
				t.Errorf("verdicts with Fail and Ignore (-want +got):\n%s", diff)
			}
		})
	}
}
