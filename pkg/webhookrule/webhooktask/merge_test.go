package webhooktask_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
)

// entries returns pods in the form of tasks.
func entries(requests []rule.Request) []appsv1alpha1.TaskPod {
	return pods(names(requests)...)
}

func TestWhichTasksAreMergedAtTheLimit(t *testing.T) {
	later := whole(300)
	no := func(requests []rule.Request) appsv1alpha1.TaskInfo {
		return appsv1alpha1.TaskInfo{
			Phase: appsv1alpha1.TaskFailed, RuleGeneration: 1, Reason: "Refused", Attempts: 3, NextTime: &later, Processing: entries(requests),
		}
	}
	yes := func(requests []rule.Request) appsv1alpha1.TaskInfo {
		return appsv1alpha1.TaskInfo{Phase: appsv1alpha1.TaskFinished, RuleGeneration: 1, Approved: entries(requests)}
	}
	answered := func(task appsv1alpha1.TaskInfo) appsv1alpha1.TaskInfo {
		task.Answered = true
		return task
	}
	working := func(requests []rule.Request) appsv1alpha1.TaskInfo {
		return appsv1alpha1.TaskInfo{Phase: appsv1alpha1.TaskPolling, RuleGeneration: 1, Processing: entries(requests)}
	}
	ghost := no(many("a", 1))
	ghost.Processing[0].UID = "ghost"
	twin := no(many("a", 1))
	twin.Processing[0].ID = "y"
	older := yes(many("b", 1))
	older.RuleGeneration = 0
	mixed := no(many("b", 1))
	mixed.Approved = entries(many("c", 1))
	for name, tc := range map[string]struct {
		a, b appsv1alpha1.TaskInfo
		want bool
	}{
		"approvals with approvals":                  {a: yes(many("a", 20)), b: yes(many("b", 5)), want: true},
		"failures with failures":                    {a: no(many("a", 20)), b: no(many("b", 5)), want: true},
		"failures with failures and approvals":      {a: no(many("a", 1)), b: mixed, want: true},
		"not failures after an answer with others":  {a: no(many("a", 1)), b: answered(no(many("b", 1)))},
		"failures after an answer with such":        {a: answered(no(many("a", 1))), b: answered(no(many("b", 1))), want: true},
		"approvals with failures after an answer":   {a: yes(many("a", 1)), b: answered(no(many("b", 1))), want: true},
		"not more approvals than fit into a task":   {a: yes(many("a", 20)), b: yes(many("b", 6))},
		"not more failures than fit into a task":    {a: no(many("a", 20)), b: no(many("b", 6))},
		"approvals with failures":                   {a: yes(many("a", 25)), b: no(many("b", 25)), want: true},
		"not one that is under way":                 {a: working(many("a", 1)), b: no(many("b", 1))},
		"not with one that is under way":            {a: no(many("a", 1)), b: working(many("b", 1))},
		"not those of another generation":           {a: yes(many("a", 1)), b: older},
		"not two pods of one name that need a call": {a: no(many("a", 1)), b: ghost},
		"but one pod that waits with two ids":       {a: no(many("a", 1)), b: twin, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			tc.a.TraceID, tc.b.TraceID = "t1", "t2"
			tasks := webhooktask.FromStatus(&appsv1alpha1.WebhookStatus{TaskStates: []appsv1alpha1.TaskInfo{tc.a, tc.b}})
			tight := polled()
			tight.States = 2
			_, posts := tasks.Open(requestsOf("web-0"), tight, after(10), func() string { return "t3" })
			if got := len(posts) == 1; got != tc.want {
				t.Errorf("joined = %t, want %t", got, tc.want)
			}
		})
	}
}

func TestStatusOfMergedTasks(t *testing.T) {
	later, minDelay := whole(300), whole(100)
	refused := appsv1alpha1.TaskInfo{
		Phase: appsv1alpha1.TaskFailed, RuleGeneration: 1, Reason: "Refused", Attempts: 3, NextTime: &later, Processing: pods("web-1"), Answered: true,
	}
	no := appsv1alpha1.TaskInfo{
		Phase: appsv1alpha1.TaskFinished, RuleGeneration: 1, Reason: "Rejected", Attempts: 1, NextTime: &minDelay, Processing: pods("web-2"),
	}
	yes := appsv1alpha1.TaskInfo{Phase: appsv1alpha1.TaskFinished, RuleGeneration: 1, Approved: pods("web-3")}
	for name, tc := range map[string]struct {
		a, b appsv1alpha1.TaskInfo
		want appsv1alpha1.TaskInfo
	}{
		"the newer failure, and the later time": {a: refused, b: no, want: appsv1alpha1.TaskInfo{
			TraceID: "t2", Phase: appsv1alpha1.TaskFinished, RuleGeneration: 1, Reason: "Rejected", Attempts: 3, NextTime: &later, Answered: true,
			Processing: pods("web-1", "web-2"),
		}},
		"the newer failure, which has the later time": {a: no, b: refused, want: appsv1alpha1.TaskInfo{
			TraceID: "t2", Phase: appsv1alpha1.TaskFailed, RuleGeneration: 1, Reason: "Refused", Attempts: 3, NextTime: &later, Answered: true,
			Processing: pods("web-2", "web-1"),
		}},
		"the failure rather than a newer approval": {a: no, b: yes, want: appsv1alpha1.TaskInfo{
			TraceID: "t1", Phase: appsv1alpha1.TaskFinished, RuleGeneration: 1, Reason: "Rejected", Attempts: 1, NextTime: &minDelay, Answered: true,
			Processing: pods("web-2"), Approved: pods("web-3"),
		}},
		"the failure rather than an older approval": {a: yes, b: no, want: appsv1alpha1.TaskInfo{
			TraceID: "t2", Phase: appsv1alpha1.TaskFinished, RuleGeneration: 1, Reason: "Rejected", Attempts: 1, NextTime: &minDelay, Answered: true,
			Processing: pods("web-2"), Approved: pods("web-3"),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.a.TraceID, tc.b.TraceID = "t1", "t2"
			tasks := webhooktask.FromStatus(&appsv1alpha1.WebhookStatus{TaskStates: []appsv1alpha1.TaskInfo{tc.a, tc.b}})
			tight := polled()
			tight.States = 2
			tasks, _ = tasks.Open(requestsOf("web-0"), tight, after(10), func() string { return "t3" })
			tc.want.LastTime = whole(10)
			if diff := cmp.Diff(tc.want, tasks.Status(after(10)).TaskStates[0]); diff != "" {
				t.Errorf("joined task (-want +got):\n%s", diff)
			}
		})
	}
}
