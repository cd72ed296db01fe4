package webhooktask_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
)

func TestWhenATaskIsPolled(t *testing.T) {
	slow := polled()
	slow.Interval = 2 * time.Minute
	slow.Timeout = time.Hour
	edited := polled()
	edited.Generation = 2
	one := []string{"t1"}
	for name, tc := range map[string]struct {
		tasks    webhooktask.Tasks
		rule     webhooktask.Rule
		last     webhooktask.LastPoll
		now      time.Time
		want     []string
		wantNext time.Duration
	}{
		"at once when the process knows of no poll": {
			tasks: polling("web-0"), rule: polled(), now: after(1), want: one, wantNext: 1,
		},
		"not before the interval is over": {
			tasks: polling("web-0"), rule: polled(), last: webhooktask.LastPoll{At: after(10)}, now: after(12), wantNext: 3 * time.Second,
		},
		"when the interval is over": {
			tasks: polling("web-0"), rule: polled(), last: webhooktask.LastPoll{At: after(10)}, now: after(15), want: one, wantNext: 1,
		},
		"never while a poll runs": {
			tasks: polling("web-0"), rule: polled(), last: webhooktask.LastPoll{At: after(10), Running: true}, now: after(30),
			wantNext: 30*time.Second + 700*time.Millisecond,
		},
		"later after a failure": {
			tasks: polling("web-0"), rule: polled(), last: webhooktask.LastPoll{At: after(10), Failures: 2}, now: after(20), wantNext: 10 * time.Second,
		},
		"no later than the timeout is looked at": {
			tasks: polling("web-0"), rule: polled(), last: webhooktask.LastPoll{At: after(10), Failures: 100}, now: after(20),
			wantNext: 40*time.Second + 700*time.Millisecond,
		},
		"no later than a minute after a failure": {
			tasks: polling("web-0"), rule: polled(), last: webhooktask.LastPoll{At: start, Failures: 100}, now: after(60), want: one, wantNext: 1,
		},
		"with its interval, when that is longer than the longest pause": {
			tasks: polling("web-0"), rule: slow, last: webhooktask.LastPoll{At: start, Failures: 3}, now: after(119), wantNext: time.Second,
		},
		"later when the service requires it": {
			tasks: polling("web-0"), rule: slow, last: webhooktask.LastPoll{At: start, Failures: 1, RetryAfter: 5 * time.Minute},
			now: after(290), wantNext: 10 * time.Second,
		},
		"at most ten minutes later when the service requires more": {
			tasks: polling("web-0"), rule: slow, last: webhooktask.LastPoll{At: start, Failures: 1, RetryAfter: 1 << 60},
			now: after(600), want: one, wantNext: 1,
		},
		"not while the POST is under way": {tasks: opened("web-0"), rule: polled(), now: after(30)},
		"not for an older rule":           {tasks: polling("web-0"), rule: edited, now: after(30)},
		"but failed ones have their time": {tasks: broken("web-0"), rule: polled(), now: start, wantNext: 10*time.Second + 700*time.Millisecond},
		"which is past once it has come":  {tasks: broken("web-0"), rule: polled(), now: after(11)},
		"nothing is due without tasks":    {tasks: webhooktask.Tasks{}, rule: polled(), now: start},
	} {
		t.Run(name, func(t *testing.T) {
			last := func(string) webhooktask.LastPoll { return tc.last }
			polls, next := tc.tasks.Due(tc.rule, last, tc.now), tc.tasks.Next(tc.rule, last, tc.now)
			var found []string
			for _, poll := range polls {
				found = append(found, poll.TraceID)
			}
			if diff := cmp.Diff(tc.want, found); diff != "" {
				t.Errorf("polls (-want +got):\n%s", diff)
			}
			if next != tc.wantNext {
				t.Errorf("next = %s, want %s", next, tc.wantNext)
			}
		})
	}
}

func TestHowATaskIsPolled(t *testing.T) {
	own := polled()
	own.QueryKey = "job"
	for name, tc := range map[string]struct {
		rule   webhooktask.Rule
		answer webhooktask.PostAnswer
		want   webhooktask.Poll
	}{
		"poll": {
			rule: polled(), answer: webhooktask.PostAnswer{Success: true, Poll: true, TaskID: "7"},
			want: webhooktask.Poll{TraceID: "t1", TaskID: "7", Keys: []string{"task-id"}},
		},
		"async gets the key of the manual, and the key that deployed services read": {
			rule: polled(), answer: webhooktask.PostAnswer{Success: true, Async: true, TaskID: "7"},
			want: webhooktask.Poll{TraceID: "t1", TaskID: "7", Keys: []string{"task-id", "trace-id"}},
		},
		"the key of the rule": {
			rule: own, answer: webhooktask.PostAnswer{Success: true, Async: true, Poll: true, TaskID: "7"},
			want: webhooktask.Poll{TraceID: "t1", TaskID: "7", Keys: []string{"job"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tasks, _ := opened("web-0").Posted("t1", tc.answer, tc.rule, start)
			tasks = webhooktask.FromStatus(tasks.Status(start)) // a restart
			tc.want.Pods = []appsv1alpha1.TaskPod{{UID: "web-0-uid", Name: "web-0", ID: "x", Generation: "1"}}
			polls := tasks.Due(tc.rule, func(string) webhooktask.LastPoll { return webhooktask.LastPoll{} }, start)
			if diff := cmp.Diff([]webhooktask.Poll{tc.want}, polls); diff != "" {
				t.Errorf("polls (-want +got):\n%s", diff)
			}
		})
	}
}

func TestATaskWithoutAKeyIsPolledWithTheUsualOne(t *testing.T) {
	status := polling("web-0").Status(start)
	status.TaskStates[0].QueryKey = ""
	polls := webhooktask.FromStatus(status).Due(polled(), func(string) webhooktask.LastPoll { return webhooktask.LastPoll{} }, start)
	if len(polls) != 1 || len(polls[0].Keys) != 1 || polls[0].Keys[0] != "task-id" {
		t.Errorf("polls = %+v, want one with task-id", polls)
	}
}
