package approval_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/pkg/approval"
	"github.com/podops-dev/podops/pkg/policy"
)

// delays plays one answer after the other, each as soon as the pods may be asked about again, and
// returns the delays in seconds.
func delays(t *testing.T, answers ...func(tasks approval.Tasks, id string, now time.Time) approval.Tasks) []int {
	t.Helper()
	tasks, newID, now, found := approval.Tasks{}, ids(), start.Truncate(time.Second), []int{}
	for _, answer := range answers {
		next, posts := tasks.Open(ask("web-0"), polled(), now, newID)
		if len(posts) != 1 {
			t.Fatalf("%d posts at %v, want 1", len(posts), now)
		}
		tasks = approval.FromStatus(answer(next, posts[0].TraceID, now).Status(now)) // a restart
		at := tasks.Of(asks("web-0"), polled(), now).RetryAt
		found = append(found, int(at.Sub(now).Seconds()))
		now = at
	}
	return found
}

func no(tasks approval.Tasks, id string, now time.Time) approval.Tasks {
	tasks, _ = tasks.Posted(id, approval.PostAnswer{}, polled(), now)
	return tasks
}

func TestTheDelayGrowsOverRestarts(t *testing.T) {
	got := delays(t, no, no, no, no, no, no, no, no, no)
	if diff := cmp.Diff([]int{10, 20, 40, 80, 160, 320, 600, 600, 600}, got); diff != "" {
		t.Errorf("seconds (-want +got):\n%s", diff)
	}
}

func TestTheServiceMayRaiseTheDelay(t *testing.T) {
	asking := func(pause time.Duration) func(approval.Tasks, string, time.Time) approval.Tasks {
		return func(tasks approval.Tasks, id string, now time.Time) approval.Tasks {
			return tasks.PostFailed(id, approval.Failure{Class: "HTTPStatus", RetryAfter: pause}, polled(), now)
		}
	}
	got := delays(t, asking(time.Minute), asking(time.Second), asking(-time.Hour), asking(999999999*time.Second))
	if diff := cmp.Diff([]int{60, 20, 40, 600}, got); diff != "" {
		t.Errorf("seconds (-want +got):\n%s", diff)
	}
}

func TestTheDelayStartsAgain(t *testing.T) {
	edited := polled()
	edited.Generation = 2
	again := asks("web-0")
	again.Generation = "2"
	twice := func() approval.Tasks { // web-0 and web-1 were rejected two times
		tasks, _ := rejected("web-0", "web-1").Open(ask("web-0", "web-1"), polled(), after(20), func() string { return "t2" })
		tasks, _ = tasks.Posted("t2", approval.PostAnswer{}, polled(), after(20))
		return tasks
	}
	for name, tc := range map[string]struct {
		request policy.Request
		rule    approval.Rule
		answer  approval.PostAnswer
		want    time.Time
	}{
		"not after one more no":                      {request: asks("web-0"), rule: polled(), want: whole(141).Time},
		"with a new generation of the rule":          {request: asks("web-0"), rule: edited, want: whole(111).Time},
		"with a new waiting":                         {request: again, rule: polled(), want: whole(111).Time},
		"when the call approved some of the others":  {request: asks("web-0"), rule: polled(), answer: approval.PostAnswer{FinishedNames: []string{"web-1"}}, want: whole(111).Time},
		"not when it approved pods nobody asked for": {request: asks("web-0"), rule: polled(), answer: approval.PostAnswer{FinishedNames: []string{"web-9"}}, want: whole(141).Time},
	} {
		t.Run(name, func(t *testing.T) {
			requests := []policy.Request{tc.request, asks("web-1")}
			tasks := twice().Forget(requests, tc.rule, after(100))
			newID := ids()
			tasks, posts := tasks.Open(requests, tc.rule, after(100), func() string { return "again-" + newID() })
			for _, post := range posts {
				tasks, _ = tasks.Posted(post.TraceID, tc.answer, tc.rule, after(100))
			}
			if got := tasks.Of(tc.request, tc.rule, after(100)).RetryAt; !got.Equal(tc.want) {
				t.Errorf("asked again at %v, want %v", got, tc.want)
			}
		})
	}
}
