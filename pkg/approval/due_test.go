package approval_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/pkg/approval"
)

func TestWhenATaskIsPolled(t *testing.T) {
	slow := polled()
	slow.Interval = 2 * time.Minute
	slow.Timeout = time.Hour
	edited := polled()
	edited.Generation = 2
	one := []string{"t1"}
	for name, tc := range map[string]struct {
		tasks    approval.Tasks
		rule     approval.Rule
		last     approval.LastPoll
		now      time.Time
		want     []string
		wantNext time.Duration
	}{
		"at once when the process knows of no poll": {
			tasks: polling("web-0"), rule: polled(), now: after(1), want: one, wantNext: 59*time.Second + 700*time.Millisecond,
		},
		"not before the interval is over": {
			tasks: polling("web-0"), rule: polled(), last: approval.LastPoll{At: after(10)}, now: after(12), wantNext: 3 * time.Second,
		},
		"when the interval is over": {
			tasks: polling("web-0"), rule: polled(), last: approval.LastPoll{At: after(10)}, now: after(15), want: one,
			wantNext: 45*time.Second + 700*time.Millisecond,
		},
		"never while a poll runs": {
			tasks: polling("web-0"), rule: polled(), last: approval.LastPoll{At: after(10), Running: true}, now: after(30),
			wantNext: 30*time.Second + 700*time.Millisecond,
		},
		"later after a failure": {
			tasks: polling("web-0"), rule: polled(), last: approval.LastPoll{At: after(10), Failures: 2}, now: after(20), wantNext: 10 * time.Second,
		},
		"no later than the timeout is looked at": {
			tasks: polling("web-0"), rule: polled(), last: approval.LastPoll{At: after(10), Failures: 100}, now: after(20),
			wantNext: 40*time.Second + 700*time.Millisecond,
		},
		"no later than a minute after a failure": {
			tasks: polling("web-0"), rule: polled(), last: approval.LastPoll{At: start, Failures: 100}, now: after(60), want: one,
			wantNext: 700 * time.Millisecond,
		},
		"with its interval, when that is longer than the longest pause": {
			tasks: polling("web-0"), rule: slow, last: approval.LastPoll{At: start, Failures: 3}, now: after(119), wantNext: time.Second,
		},
		"later when the service asks for it": {
			tasks: polling("web-0"), rule: slow, last: approval.LastPoll{At: start, Failures: 1, RetryAfter: 5 * time.Minute},
			now: after(290), wantNext: 10 * time.Second,
		},
		"at most ten minutes later when the service asks for more": {
			tasks: polling("web-0"), rule: slow, last: approval.LastPoll{At: start, Failures: 1, RetryAfter: 1 << 60},
			now: after(600), want: one, wantNext: 50*time.Minute + 700*time.Millisecond,
		},
		"not while the POST is under way":   {tasks: opened("web-0"), rule: polled(), now: after(30)},
		"not for an older rule":             {tasks: polling("web-0"), rule: edited, now: after(30)},
		"but failed ones have their time":   {tasks: rejected("web-0"), rule: polled(), now: start, wantNext: 10*time.Second + 700*time.Millisecond},
		"which is past once it has come":    {tasks: rejected("web-0"), rule: polled(), now: after(11)},
		"nothing is due when there is none": {tasks: approval.Tasks{}, rule: polled(), now: start},
	} {
		t.Run(name, func(t *testing.T) {
			polls, next := tc.tasks.Due(tc.rule, func(string) approval.LastPoll { return tc.last }, tc.now)
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
		rule   approval.Rule
		answer approval.PostAnswer
		want   approval.Poll
	}{
		"poll": {
			rule: polled(), answer: approval.PostAnswer{Success: true, Poll: true, TaskID: "7"},
			want: approval.Poll{TraceID: "t1", TaskID: "7", Keys: []string{"task-id"}},
		},
		"async gets both keys that were ever documented": {
			rule: polled(), answer: approval.PostAnswer{Success: true, Async: true, TaskID: "7"},
			want: approval.Poll{TraceID: "t1", TaskID: "7", Keys: []string{"task-id", "trace-id"}},
		},
		"the key of the rule": {
			rule: own, answer: approval.PostAnswer{Success: true, Async: true, Poll: true, TaskID: "7"},
			want: approval.Poll{TraceID: "t1", TaskID: "7", Keys: []string{"job"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tasks, _ := opened("web-0").Posted("t1", tc.answer, tc.rule, start)
			tasks = approval.FromStatus(tasks.Status(start)) // a restart
			polls, _ := tasks.Due(tc.rule, func(string) approval.LastPoll { return approval.LastPoll{} }, start)
			if diff := cmp.Diff([]approval.Poll{tc.want}, polls); diff != "" {
				t.Errorf("polls (-want +got):\n%s", diff)
			}
		})
	}
}

func TestATaskWithoutAKeyIsPolledWithTheUsualOne(t *testing.T) {
	status := polling("web-0").Status(start)
	status.TaskStates[0].QueryKey = ""
	polls, _ := approval.FromStatus(status).Due(polled(), func(string) approval.LastPoll { return approval.LastPoll{} }, start)
	if len(polls) != 1 || len(polls[0].Keys) != 1 || polls[0].Keys[0] != "task-id" {
		t.Errorf("polls = %+v, want one with task-id", polls)
	}
}
