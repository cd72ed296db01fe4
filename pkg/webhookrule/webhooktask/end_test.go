package webhooktask_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
)

func unknown(string) bool { return false }

func TestAPostOfAnEarlierProcessIsInterrupted(t *testing.T) {
	tasks := opened("web-0")
	tasks, _ = tasks.Open(requestsOf("web-1"), polled(), start, func() string { return "t2" })
	tasks = tasks.Interrupted(func(id string) bool { return id == "t2" }, after(3))
	want := rule.Task{
		State: failed, Class: "Interrupted", RetryAt: whole(7).Time,
		Message: "the manager ended during the call; it is not known whether the service received it",
	}
	if diff := cmp.Diff(want, tasks.Of(requestOf("web-0"), polled(), after(3))); diff != "" {
		t.Errorf("web-0 (-want +got):\n%s", diff)
	}
	if got := states(tasks, after(3), "web-1")[0]; got != calling {
		t.Errorf("web-1 is %s, want %s", got, calling)
	}
	late, _ := tasks.Posted("t1", webhooktask.PostAnswer{Success: true}, polled(), after(4))
	if got := states(late, after(4), "web-0")[0]; got != failed {
		t.Errorf("after a late answer web-0 is %s, want %s", got, failed)
	}
	tasks, posts := tasks.Open(requestsOf("web-0"), polled(), after(14), func() string { return "t3" })
	if len(posts) != 1 || posts[0].TraceID != "t3" {
		t.Errorf("posts = %+v, want one under another id", posts)
	}
	if history := tasks.Status(after(14)).History; len(history) != 1 || history[0].TraceID != "t1" {
		t.Errorf("history = %v, want t1", shown(history))
	}
}

func TestATaskThatIsPolledSurvivesARestart(t *testing.T) {
	before := polling("web-0")
	after := webhooktask.FromStatus(before.Status(start)).Interrupted(unknown, after(3))
	if diff := cmp.Diff(before.Status(start), after.Status(start)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

func TestTheTimeoutCountsFromTheFirstCall(t *testing.T) {
	tasks := polling("web-0", "web-1")
	tasks, _ = tasks.Polled("t1", webhooktask.PollAnswer{Success: true, Message: "busy", FinishedNames: []string{"web-1"}}, polled(), after(50))
	tasks = webhooktask.FromStatus(tasks.Status(after(50))) // a restart
	for name, tc := range map[string]struct {
		now  time.Time
		want rule.Task
	}{
		"just before": {now: after(60), want: rule.Task{State: worksOn, Answered: true, Message: "busy"}},
		"after it": {now: after(61), want: rule.Task{
			State: failed, Class: "Expired", Answered: true, Message: "the service did not finish within 1m0s; its last message: busy", RetryAt: whole(72).Time,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			expired := tasks.Expire(polled(), tc.now)
			if diff := cmp.Diff(tc.want, expired.Of(requestOf("web-0"), polled(), tc.now)); diff != "" {
				t.Errorf("web-0 (-want +got):\n%s", diff)
			}
			if got := states(expired, tc.now, "web-1")[0]; got != approved {
				t.Errorf("web-1 is %s, want %s", got, approved)
			}
		})
	}
}

func TestAnExpiredTaskKeepsItsLastMessage(t *testing.T) {
	for name, tc := range map[string]struct {
		tasks webhooktask.Tasks
		want  string
	}{
		"nothing": {tasks: polling("web-0"), want: "the service did not finish within 1m0s"},
		"the last failure": {
			tasks: polling("web-0").PollFailed("t1", webhooktask.Failure{Class: "Refused", Message: "connection refused"}, polled(), after(40)),
			want:  "the service did not finish within 1m0s; the last poll failed: connection refused",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tasks := tc.tasks.Expire(polled(), after(61))
			if got := tasks.Of(requestOf("web-0"), polled(), after(61)).Message; got != tc.want {
				t.Errorf("message = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestAPostDoesNotExpire(t *testing.T) {
	// The client bounds it, and reports its result.
	tasks := opened("web-0").Expire(polled(), after(1000))
	if got := states(tasks, after(1000), "web-0")[0]; got != calling {
		t.Errorf("web-0 is %s, want %s", got, calling)
	}
}

func TestForget(t *testing.T) {
	edited := polled()
	edited.Generation = 2
	partly, _ := polling("web-0", "web-1").Polled("t1", webhooktask.PollAnswer{Success: true, FinishedNames: []string{"web-1"}}, polled(), after(5))
	mixed, _ := opened("web-0", "web-1").Posted("t1", webhooktask.PostAnswer{FinishedNames: []string{"web-1"}}, polled(), start)
	for name, tc := range map[string]struct {
		tasks       webhooktask.Tasks
		waiting     []rule.Request
		rule        webhooktask.Rule
		want        []string
		wantHistory []string
	}{
		"nothing while all wait": {
			tasks: mixed, waiting: requestsOf("web-1", "web-0", "web-2"), rule: polled(),
			want: []string{"t1 Finished Rejected attempts 0: [web-1] approved, [web-0] not"},
		},
		"an approved pod that waits no more": {
			tasks: mixed, waiting: requestsOf("web-0"), rule: polled(),
			want: []string{"t1 Finished Rejected attempts 0: [] approved, [web-0] not"},
		},
		"a rejected pod that waits no more": {
			tasks: mixed, waiting: requestsOf("web-1"), rule: polled(),
			want: []string{"t1 Finished attempts 0: [web-1] approved, [] not"},
		},
		"an ended task without waiting pods": {
			tasks: mixed, rule: polled(),
			want: []string{}, wantHistory: []string{"t1 Finished Rejected attempts 0: [web-1] approved, [web-0] not"},
		},
		"no pod of an open task, as long as one waits for it": {
			tasks: partly, waiting: requestsOf("web-0"), rule: polled(),
			want: []string{"t1 Polling attempts 0: [web-1] approved, [web-0] not"},
		},
		"an open task with only approved pods waiting": {
			tasks: partly, waiting: requestsOf("web-1"), rule: polled(),
			want: []string{"t1 Finished attempts 0: [web-1] approved, [] not"},
		},
		"an open task without waiting pods": {
			tasks: partly, rule: polled(),
			want: []string{}, wantHistory: []string{`t1 Failed NobodyWaits attempts 0: [web-1] approved, [web-0] not`},
		},
		"an open task of an older generation": {
			tasks: partly, waiting: requestsOf("web-0", "web-1"), rule: edited,
			want: []string{}, wantHistory: []string{"t1 Failed RuleEdited attempts 0: [web-1] approved, [web-0] not"},
		},
		"approvals of an older generation": {
			tasks: mixed, waiting: requestsOf("web-0", "web-1"), rule: edited,
			want: []string{}, wantHistory: []string{"t1 Finished Rejected attempts 0: [web-1] approved, [web-0] not"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			status := tc.tasks.Forget(tc.waiting, tc.rule, after(20)).Status(after(20))
			if diff := cmp.Diff(tc.want, shown(status.TaskStates)); diff != "" {
				t.Errorf("tasks (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantHistory, shown(status.History), cmp.Transformer("none", emptyToNil)); diff != "" {
				t.Errorf("history (-want +got):\n%s", diff)
			}
		})
	}
}

func emptyToNil(lines []string) []string {
	if len(lines) == 0 {
		return nil
	}
	return lines
}

func TestHistoryIsNewestFirstAndBounded(t *testing.T) {
	tasks, newID := webhooktask.Tasks{}, ids()
	for i := range 7 {
		tasks, _ = tasks.Open(many("web", 25), polled(), after(60*i), newID)
		tasks = tasks.Forget(nil, polled(), after(60*i))
	}
	found := []string{}
	for _, task := range tasks.Status(after(400)).History {
		found = append(found, task.TraceID)
		if len(task.Processing) != 5 {
			t.Errorf("%s shows %d pods, want 5", task.TraceID, len(task.Processing))
		}
	}
	if diff := cmp.Diff([]string{"t7", "t6", "t5", "t4", "t3"}, found); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	// t7 ended at 360 s.
	if got := len(tasks.Status(after(958)).History); got != 1 {
		t.Errorf("%d calls after almost 10 minutes, want 1", got)
	}
	if status := tasks.Status(after(960)); status != nil {
		t.Errorf("status after 10 minutes = %+v, want nil", status)
	}
}

func TestHistoryTimeCountsFromTheEndOfACall(t *testing.T) {
	tasks := rejected("web-0").Forget(nil, polled(), after(700))
	history := tasks.Status(after(1200)).History
	if len(history) != 1 || !history[0].LastTime.Equal(new(whole(700))) || history[0].NextTime != nil {
		t.Errorf("history = %+v, want the call, last changed at %v, and no repetition", history, whole(700))
	}
}
