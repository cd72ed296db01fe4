package webhooktask_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
)

// delays applies one answer after the other, each as soon as the service may be called again, and
// returns the delays in seconds.
func delays(t *testing.T, answers ...func(tasks webhooktask.Tasks, id string, now time.Time) webhooktask.Tasks) []int {
	t.Helper()
	tasks, newID, now, found := webhooktask.Tasks{}, ids(), start.Truncate(time.Second), []int{}
	for _, answer := range answers {
		next, posts := tasks.Open(requestsOf("web-0"), polled(), now, newID)
		if len(posts) != 1 {
			t.Fatalf("%d posts at %v, want 1", len(posts), now)
		}
		tasks = webhooktask.FromStatus(answer(next, posts[0].TraceID, now).Status(now)) // a restart
		at := tasks.Of(requestOf("web-0"), polled(), now).RetryAt
		found = append(found, int(at.Sub(now).Seconds()))
		now = at
	}
	return found
}

func fails(tasks webhooktask.Tasks, id string, now time.Time) webhooktask.Tasks {
	return tasks.PostFailed(id, webhooktask.Failure{Class: "Unreachable"}, polled(), now)
}

// stopped accepts a task, which the service then gives up.
func stopped(tasks webhooktask.Tasks, id string, now time.Time) webhooktask.Tasks {
	tasks, _ = tasks.Posted(id, webhooktask.PostAnswer{Success: true, Poll: true, TaskID: "7"}, polled(), now)
	tasks, _ = tasks.Polled(id, webhooktask.PollAnswer{Success: true, Stop: true}, polled(), now)
	return tasks
}

func no(tasks webhooktask.Tasks, id string, now time.Time) webhooktask.Tasks {
	tasks, _ = tasks.Posted(id, webhooktask.PostAnswer{}, polled(), now)
	return tasks
}

func TestTheDelayGrowsOverRestarts(t *testing.T) {
	for name, end := range map[string]func(webhooktask.Tasks, string, time.Time) webhooktask.Tasks{
		"after failures": fails, "after tasks that were given up": stopped,
	} {
		t.Run(name, func(t *testing.T) {
			got := delays(t, end, end, end, end, end, end, end, end, end)
			if diff := cmp.Diff([]int{10, 20, 40, 80, 160, 320, 600, 600, 600}, got); diff != "" {
				t.Errorf("seconds (-want +got):\n%s", diff)
			}
		})
	}
}

// TestARejectionIsRepeatedAtASteadyInterval checks that the calls are spread, and that failures in
// between have the delay of the first failure.
func TestARejectionIsRepeatedAtASteadyInterval(t *testing.T) {
	got := delays(t, no, no, no, no, no, no, no, no, fails, fails, no, fails)
	different := map[int]bool{}
	for i, seconds := range got {
		switch i {
		case 8, 11:
			if seconds != 10 {
				t.Errorf("the first failure has a delay of %d s, want 10 s", seconds)
			}
		case 9:
			if seconds != 20 {
				t.Errorf("the second failure has a delay of %d s, want 20 s", seconds)
			}
		default:
			different[seconds] = true
			if seconds < 12 || seconds > 18 {
				t.Errorf("a no has a delay of %d s, want 15 s give or take 3", seconds)
			}
		}
	}
	if len(different) < 2 {
		t.Errorf("every no has a delay of the same length: %v", got)
	}
}

func TestTheServiceMayRaiseTheDelay(t *testing.T) {
	failing := func(pause time.Duration) func(webhooktask.Tasks, string, time.Time) webhooktask.Tasks {
		return func(tasks webhooktask.Tasks, id string, now time.Time) webhooktask.Tasks {
			return tasks.PostFailed(id, webhooktask.Failure{Class: "HTTPStatus", RetryAfter: pause}, polled(), now)
		}
	}
	got := delays(t, failing(time.Minute), failing(time.Second), failing(-time.Hour), failing(999999999*time.Second))
	if diff := cmp.Diff([]int{60, 20, 40, 600}, got); diff != "" {
		t.Errorf("seconds (-want +got):\n%s", diff)
	}
}

func TestTheDelayStartsAgain(t *testing.T) {
	edited := polled()
	edited.Generation = 2
	again := requestOf("web-0")
	again.Attempt = "2"
	twice := func() webhooktask.Tasks { // two calls for web-0 and web-1 have failed
		tasks, _ := broken("web-0", "web-1").Open(requestsOf("web-0", "web-1"), polled(), after(20), func() string { return "t2" })
		return fails(tasks, "t2", after(20))
	}
	stoppedWith := func(approves string) func(webhooktask.Tasks, string, time.Time) webhooktask.Tasks {
		return func(tasks webhooktask.Tasks, id string, now time.Time) webhooktask.Tasks {
			tasks, _ = tasks.Posted(id, webhooktask.PostAnswer{Success: true, Poll: true, TaskID: "7"}, polled(), now)
			tasks, _ = tasks.Polled(id, webhooktask.PollAnswer{Success: true, Stop: true, FinishedNames: []string{approves}}, polled(), now)
			return tasks
		}
	}
	for name, tc := range map[string]struct {
		request rule.Request
		rule    webhooktask.Rule
		end     func(webhooktask.Tasks, string, time.Time) webhooktask.Tasks
		want    time.Time
	}{
		"not after one more failure":                {request: requestOf("web-0"), rule: polled(), end: fails, want: whole(141).Time},
		"with a new generation of the rule":         {request: requestOf("web-0"), rule: edited, want: whole(111).Time},
		"with a new waiting":                        {request: again, rule: polled(), end: fails, want: whole(111).Time},
		"when the call approved some of the others": {request: requestOf("web-0"), rule: polled(), end: stoppedWith("web-1"), want: whole(111).Time},
		"not when it approved other pods":           {request: requestOf("web-0"), rule: polled(), end: stoppedWith("web-9"), want: whole(141).Time},
	} {
		t.Run(name, func(t *testing.T) {
			requests := []rule.Request{tc.request, requestOf("web-1")}
			tasks := twice().Forget(requests, tc.rule, after(100))
			newID := ids()
			tasks, posts := tasks.Open(requests, tc.rule, after(100), func() string { return "again-" + newID() })
			for _, post := range posts {
				if tc.end == nil {
					tasks = tasks.PostFailed(post.TraceID, webhooktask.Failure{Class: "Unreachable"}, tc.rule, after(100))
					continue
				}
				tasks = tc.end(tasks, post.TraceID, after(100))
			}
			if got := tasks.Of(tc.request, tc.rule, after(100)).RetryAt; !got.Equal(tc.want) {
				t.Errorf("called again at %v, want %v", got, tc.want)
			}
		})
	}
}
