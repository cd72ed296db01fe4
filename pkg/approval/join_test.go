package approval_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/approval"
	"github.com/podops-dev/podops/pkg/policy"
)

// entries are as pods of tasks have them.
func entries(requests []policy.Request) []appsv1alpha1.TaskPod {
	return pods(names(requests)...)
}

func TestWhichTasksAreJoinedForWantOfRoom(t *testing.T) {
	later, sooner := whole(300), whole(100)
	no := func(requests []policy.Request) appsv1alpha1.TaskInfo {
		return appsv1alpha1.TaskInfo{
			Phase: appsv1alpha1.TaskFailed, RuleGeneration: 1, Reason: "Refused", Attempts: 3, NextTime: &later, Processing: entries(requests),
		}
	}
	yes := func(requests []policy.Request) appsv1alpha1.TaskInfo {
		return appsv1alpha1.TaskInfo{Phase: appsv1alpha1.TaskFinished, RuleGeneration: 1, Approved: entries(requests)}
	}
	working := func(requests []policy.Request) appsv1alpha1.TaskInfo {
		return appsv1alpha1.TaskInfo{Phase: appsv1alpha1.TaskPolling, RuleGeneration: 1, Processing: entries(requests)}
	}
	soon := no(many("b", 2))
	soon.NextTime, soon.Attempts, soon.Reason = &sooner, 1, "Rejected"
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
		"approvals with approvals":                    {a: yes(many("a", 20)), b: yes(many("b", 5)), want: true},
		"failures with failures":                      {a: no(many("a", 20)), b: no(many("b", 5)), want: true},
		"failures with failures and approvals":        {a: no(many("a", 1)), b: mixed, want: true},
		"not more approvals than a task has room for": {a: yes(many("a", 20)), b: yes(many("b", 6))},
		"not more failures than a task has room for":  {a: no(many("a", 20)), b: no(many("b", 6))},
		"not approvals with failures":                 {a: yes(many("a", 1)), b: no(many("b", 1))},
		"not one that is under way":                   {a: working(many("a", 1)), b: no(many("b", 1))},
		"not with one that is under way":              {a: no(many("a", 1)), b: working(many("b", 1))},
		"not those of another generation":             {a: yes(many("a", 1)), b: older},
		"not two pods of one name to be asked about":  {a: no(many("a", 1)), b: ghost},
		"but one pod that waits with two ids":         {a: no(many("a", 1)), b: twin, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			tc.a.TraceID, tc.b.TraceID = "t1", "t2"
			tasks := approval.FromStatus(&appsv1alpha1.WebhookStatus{TaskStates: []appsv1alpha1.TaskInfo{tc.a, tc.b}})
			tight := polled()
			tight.States = 2
			_, posts := tasks.Open(ask("web-0"), tight, after(10), func() string { return "t3" })
			if got := len(posts) == 1; got != tc.want {
				t.Errorf("joined = %t, want %t", got, tc.want)
			}
		})
	}

	t.Run("the newer one is shown, and the later time counts", func(t *testing.T) {
		first, second := no(many("a", 1)), soon
		first.TraceID, second.TraceID = "t1", "t2"
		tasks := approval.FromStatus(&appsv1alpha1.WebhookStatus{TaskStates: []appsv1alpha1.TaskInfo{first, second}})
		tight := polled()
		tight.States = 2
		tasks, _ = tasks.Open(ask("web-0"), tight, after(10), func() string { return "t3" })
		want := second
		want.Processing = append(entries(many("a", 1)), entries(many("b", 2))...)
		want.NextTime, want.Attempts, want.LastTime = &later, 3, whole(10)
		if diff := cmp.Diff(want, tasks.Status(after(10)).TaskStates[0]); diff != "" {
			t.Errorf("joined task (-want +got):\n%s", diff)
		}
	})
}
