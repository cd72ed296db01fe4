package webhooktask_test

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
)

const (
	calling  = rule.TaskCalling
	worksOn  = rule.TaskPolling
	approved = rule.TaskApproved
	failed   = rule.TaskFailed
)

func TestAnswerToAPost(t *testing.T) {
	unpolled := polled()
	unpolled.Polls = false
	for name, tc := range map[string]struct {
		answer      webhooktask.PostAnswer
		rule        webhooktask.Rule
		want        []rule.TaskState // of web-0 and web-1
		wantPhase   appsv1alpha1.TaskPhase
		wantReason  string
		wantTaskID  string
		wantUnknown []string
	}{
		"success approves all": {
			answer: webhooktask.PostAnswer{Success: true}, rule: unpolled,
			want: []rule.TaskState{approved, approved}, wantPhase: appsv1alpha1.TaskFinished,
		},
		"success approves all, also of a rule with a poll": {
			answer: webhooktask.PostAnswer{Success: true, TaskID: "7"}, rule: polled(),
			want: []rule.TaskState{approved, approved}, wantPhase: appsv1alpha1.TaskFinished,
		},
		"success approves all, with any names": {
			answer: webhooktask.PostAnswer{Success: true, FinishedNames: []string{"web-1"}}, rule: unpolled,
			want: []rule.TaskState{approved, approved}, wantPhase: appsv1alpha1.TaskFinished,
		},
		"no success rejects all": {
			answer: webhooktask.PostAnswer{}, rule: unpolled,
			want: []rule.TaskState{failed, failed}, wantPhase: appsv1alpha1.TaskFinished, wantReason: "Rejected",
		},
		"no success approves the named pods": {
			answer: webhooktask.PostAnswer{FinishedNames: []string{"web-1"}}, rule: unpolled,
			want: []rule.TaskState{failed, approved}, wantPhase: appsv1alpha1.TaskFinished, wantReason: "Rejected",
		},
		"no success with all pods named rejects no pod": {
			answer: webhooktask.PostAnswer{FinishedNames: []string{"web-1", "web-0"}}, rule: unpolled,
			want: []rule.TaskState{approved, approved}, wantPhase: appsv1alpha1.TaskFinished,
		},
		"names of other pods approve nothing": {
			answer: webhooktask.PostAnswer{FinishedNames: []string{"web-9", "db-0", "web-9"}}, rule: unpolled,
			want: []rule.TaskState{failed, failed}, wantPhase: appsv1alpha1.TaskFinished, wantReason: "Rejected",
			wantUnknown: []string{"db-0", "web-9"},
		},
		"poll: the answer comes later": {
			answer: webhooktask.PostAnswer{Success: true, Poll: true, TaskID: "7"}, rule: polled(),
			want: []rule.TaskState{worksOn, worksOn}, wantPhase: appsv1alpha1.TaskPolling, wantTaskID: "7",
		},
		"async: the answer comes later": {
			answer: webhooktask.PostAnswer{Success: true, Async: true, TaskID: "7"}, rule: polled(),
			want: []rule.TaskState{worksOn, worksOn}, wantPhase: appsv1alpha1.TaskPolling, wantTaskID: "7",
		},
		"async with the traceId as taskId": {
			answer: webhooktask.PostAnswer{Success: true, Async: true, TaskID: "t1"}, rule: polled(),
			want: []rule.TaskState{worksOn, worksOn}, wantPhase: appsv1alpha1.TaskPolling, wantTaskID: "t1",
		},
		"poll that approves some at once": {
			answer: webhooktask.PostAnswer{Success: true, Poll: true, TaskID: "7", FinishedNames: []string{"web-0"}}, rule: polled(),
			want: []rule.TaskState{approved, worksOn}, wantPhase: appsv1alpha1.TaskPolling, wantTaskID: "7",
		},
		"poll that approves all at once needs no poll": {
			answer: webhooktask.PostAnswer{Success: true, Poll: true, TaskID: "7", FinishedNames: []string{"web-0", "web-1"}}, rule: polled(),
			want: []rule.TaskState{approved, approved}, wantPhase: appsv1alpha1.TaskFinished, wantTaskID: "7",
		},
		"poll without success is a no": {
			answer: webhooktask.PostAnswer{Poll: true, TaskID: "7", FinishedNames: []string{"web-0"}}, rule: polled(),
			want: []rule.TaskState{approved, failed}, wantPhase: appsv1alpha1.TaskFinished, wantReason: "Rejected",
		},
		"poll for a rule without a poll cannot be followed": {
			answer: webhooktask.PostAnswer{Success: true, Poll: true, TaskID: "7"}, rule: unpolled,
			want: []rule.TaskState{failed, failed}, wantPhase: appsv1alpha1.TaskFailed, wantReason: "BadResponse",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tasks, unknown := opened("web-0", "web-1").Posted("t1", tc.answer, tc.rule, after(1))
			if diff := cmp.Diff(tc.want, states(tasks, after(1), "web-0", "web-1")); diff != "" {
				t.Errorf("states (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantUnknown, unknown); diff != "" {
				t.Errorf("unknown names (-want +got):\n%s", diff)
			}
			task := theTask(t, tasks, after(1))
			if task.Phase != tc.wantPhase || task.Reason != tc.wantReason || task.TaskID != tc.wantTaskID {
				t.Errorf("task = %s %q taskId %q, want %s %q taskId %q",
					task.Phase, task.Reason, task.TaskID, tc.wantPhase, tc.wantReason, tc.wantTaskID)
			}
		})
	}
}

func TestAnswerToAPoll(t *testing.T) {
	for name, tc := range map[string]struct {
		answer      webhooktask.PollAnswer
		want        []rule.TaskState // of web-0 and web-1
		wantReason  string
		wantUnknown []string
	}{
		"nothing yet":              {answer: webhooktask.PollAnswer{Success: true}, want: []rule.TaskState{worksOn, worksOn}},
		"an error is not the end":  {answer: webhooktask.PollAnswer{}, want: []rule.TaskState{worksOn, worksOn}},
		"finished with success":    {answer: webhooktask.PollAnswer{Success: true, Finished: true}, want: []rule.TaskState{approved, approved}},
		"one of them":              {answer: webhooktask.PollAnswer{Success: true, FinishedNames: []string{"web-1"}}, want: []rule.TaskState{worksOn, approved}},
		"one of them, in an error": {answer: webhooktask.PollAnswer{FinishedNames: []string{"web-1"}}, want: []rule.TaskState{worksOn, worksOn}},
		"each of them":             {answer: webhooktask.PollAnswer{Success: true, FinishedNames: []string{"web-1", "web-0"}}, want: []rule.TaskState{approved, approved}},
		"finished without success": {
			answer: webhooktask.PollAnswer{Finished: true, FinishedNames: []string{"web-0"}},
			want:   []rule.TaskState{failed, failed}, wantReason: "Rejected",
		},
		"stop": {
			answer: webhooktask.PollAnswer{Success: true, Stop: true, FinishedNames: []string{"web-0"}},
			want:   []rule.TaskState{approved, failed}, wantReason: "Stopped",
		},
		"stop and finished with success is a success": {
			answer: webhooktask.PollAnswer{Success: true, Finished: true, Stop: true},
			want:   []rule.TaskState{approved, approved},
		},
		"names of other pods": {
			answer: webhooktask.PollAnswer{Success: true, FinishedNames: []string{"web-9"}},
			want:   []rule.TaskState{worksOn, worksOn}, wantUnknown: []string{"web-9"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tasks, unknown := polling("web-0", "web-1").Polled("t1", tc.answer, polled(), after(5))
			if diff := cmp.Diff(tc.want, states(tasks, after(5), "web-0", "web-1")); diff != "" {
				t.Errorf("states (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantUnknown, unknown); diff != "" {
				t.Errorf("unknown names (-want +got):\n%s", diff)
			}
			task := theTask(t, tasks, after(5))
			if task.Reason != tc.wantReason {
				t.Errorf("reason = %q, want %q", task.Reason, tc.wantReason)
			}
			goesOn := slices.Contains(tc.want, worksOn)
			if goesOn != (task.Phase == appsv1alpha1.TaskPolling) {
				t.Errorf("phase = %s, want it to be Polling as long as a pod is", task.Phase)
			}
		})
	}
}

func TestAServiceMayNameAPodAgain(t *testing.T) {
	tasks, _ := polling("web-0", "web-1").Polled("t1", webhooktask.PollAnswer{Success: true, FinishedNames: []string{"web-0"}}, polled(), after(5))
	tasks = tasks.Forget(requestsOf("web-1"), polled(), after(6)) // web-0 no longer waits
	tasks, unknown := tasks.Polled("t1", webhooktask.PollAnswer{Success: true, FinishedNames: []string{"web-0", "web-1"}}, polled(), after(10))
	if len(unknown) > 0 {
		t.Errorf("unknown = %v, want none: the call had both", unknown)
	}
	if got := states(tasks, after(10), "web-1"); got[0] != approved {
		t.Errorf("web-1 is %s, want %s", got[0], approved)
	}
}

func TestANameApprovesAllRequestsOfThatPod(t *testing.T) {
	second := requestOf("web-0")
	second.ID = "y"
	tasks, posts := webhooktask.Tasks{}.Open([]rule.Request{requestOf("web-0"), second, requestOf("web-1")}, polled(), start, ids())
	if len(posts) != 1 || len(posts[0].Requests) != 3 {
		t.Fatalf("posts = %+v, want one about three requests", posts)
	}
	tasks, _ = tasks.Posted("t1", webhooktask.PostAnswer{FinishedNames: []string{"web-0"}}, polled(), start)
	for _, request := range []rule.Request{requestOf("web-0"), second} {
		if got := tasks.Of(request, polled(), start).State; got != approved {
			t.Errorf("id %s is %s, want %s", request.ID, got, approved)
		}
	}
}

func TestAnAnswerWithoutAWaitingTaskChangesNothing(t *testing.T) {
	edited := polled()
	edited.Generation = 2
	yes, done := webhooktask.PostAnswer{Success: true}, webhooktask.PollAnswer{Success: true, Finished: true}
	for name, tc := range map[string]struct {
		tasks webhooktask.Tasks
		id    string
		rule  webhooktask.Rule
	}{
		"a task that is not known": {tasks: rejected("web-0"), id: "t9", rule: polled()},
		"a task that has ended":    {tasks: rejected("web-0"), id: "t1", rule: polled()},
		"a post of an older rule":  {tasks: opened("web-0"), id: "t1", rule: edited},
		"a poll of an older rule":  {tasks: polling("web-0"), id: "t1", rule: edited},
		"no tasks at all":          {tasks: webhooktask.Tasks{}, id: "t1", rule: polled()},
		"an unknown id":            {tasks: polling("web-0"), id: "", rule: polled()},
	} {
		t.Run(name, func(t *testing.T) {
			posted, unknown := tc.tasks.Posted(tc.id, yes, tc.rule, after(1))
			polledOnce, unknownOnce := tc.tasks.Polled(tc.id, done, tc.rule, after(1))
			if len(unknown)+len(unknownOnce) > 0 {
				t.Errorf("unknown = %v and %v, want none", unknown, unknownOnce)
			}
			failure := webhooktask.Failure{Class: "Refused"}
			for step, got := range map[string]webhooktask.Tasks{
				"Posted": posted, "Polled": polledOnce,
				"PostFailed": tc.tasks.PostFailed(tc.id, failure, tc.rule, after(1)),
				"PollFailed": tc.tasks.PollFailed(tc.id, failure, tc.rule, after(60)),
			} {
				if diff := cmp.Diff(tc.tasks.Status(after(1)), got.Status(after(1))); diff != "" {
					t.Errorf("%s changed (-before +after):\n%s", step, diff)
				}
			}
		})
	}
}

func TestADuplicateResultCountsOnce(t *testing.T) {
	once := polling("web-0", "web-1")
	twice, _ := once.Posted("t1", webhooktask.PostAnswer{Success: true}, polled(), after(1))
	if diff := cmp.Diff(once.Status(start), twice.Status(start)); diff != "" {
		t.Errorf("a second answer to the POST changed (-once +twice):\n%s", diff)
	}
	answer := webhooktask.PollAnswer{Success: true, FinishedNames: []string{"web-0"}}
	once, _ = once.Polled("t1", answer, polled(), after(5))
	twice, _ = once.Polled("t1", answer, polled(), after(6))
	if diff := cmp.Diff(once.Status(after(6)), twice.Status(after(6))); diff != "" {
		t.Errorf("a second answer to the poll changed (-once +twice):\n%s", diff)
	}
}

func TestAFailedPostFailsThePods(t *testing.T) {
	tasks := opened("web-0").PostFailed("t1", webhooktask.Failure{Class: "Refused", Message: "connection refused"}, polled(), after(2))
	want := rule.Task{State: failed, Class: "Refused", Message: "connection refused", RetryAt: whole(13).Time}
	if diff := cmp.Diff(want, tasks.Of(requestOf("web-0"), polled(), after(2))); diff != "" {
		t.Errorf("task (-want +got):\n%s", diff)
	}
	if task := theTask(t, tasks, after(2)); task.Phase != appsv1alpha1.TaskFailed || task.Attempts != 1 {
		t.Errorf("task = %s after %d attempts, want Failed after 1", task.Phase, task.Attempts)
	}
}

func TestAFailedPollIsShownAndTheTaskContinues(t *testing.T) {
	tasks := polling("web-0").PollFailed("t1", webhooktask.Failure{Class: "Timeout", Message: "no answer"}, polled(), after(31))
	want := rule.Task{State: worksOn, Answered: true, Message: "no answer"}
	if diff := cmp.Diff(want, tasks.Of(requestOf("web-0"), polled(), after(31))); diff != "" {
		t.Errorf("task (-want +got):\n%s", diff)
	}
	if task := theTask(t, tasks, after(31)); task.Reason != "Timeout" {
		t.Errorf("reason = %q, want Timeout", task.Reason)
	}
	tasks, _ = tasks.Polled("t1", webhooktask.PollAnswer{Success: true, Message: "half done"}, polled(), after(62))
	if task := theTask(t, tasks, after(62)); task.Reason != "" || task.Message != "half done" {
		t.Errorf("after a good poll the task shows %q %q, want no reason and its message", task.Reason, task.Message)
	}
}

func TestMessagesOfPollsAloneRarelyWriteStatus(t *testing.T) {
	tasks, writes := polling("web-0"), 0
	for second := 1; second <= 59; second++ {
		// The service counts the seconds in its message.
		next, _ := tasks.Polled("t1", webhooktask.PollAnswer{Success: true, Message: strings.Repeat(".", second)}, polled(), after(second))
		if !cmp.Equal(tasks.Status(after(second)), next.Status(after(second))) {
			writes++
		}
		tasks = next
	}
	if writes != 1 {
		t.Errorf("%d writes within a minute, want 1", writes)
	}
	same, _ := tasks.Polled("t1", webhooktask.PollAnswer{Success: true, Message: theTask(t, tasks, after(59)).Message}, polled(), after(3000))
	if diff := cmp.Diff(tasks.Status(start), same.Status(start)); diff != "" {
		t.Errorf("a poll with the same message changed it (-before +after):\n%s", diff)
	}
}

func TestStringsOfServicesFitIntoStatus(t *testing.T) {
	hostile := "\x1b[31m\xff" + strings.Repeat("ö", 600)
	tasks := opened("web-0").PostFailed("t1", webhooktask.Failure{Class: hostile, Message: hostile, RetryAfter: 1 << 62}, polled(), start)
	task := theTask(t, tasks, start)
	if len(task.Message) > rule.MaxMessageBytes || len(task.Reason) > 63 {
		t.Errorf("message of %d and reason of %d bytes, want at most 512 and 63", len(task.Message), len(task.Reason))
	}
	if !utf8.ValidString(task.Message) || !strings.HasPrefix(task.Message, "\\x1b[31m\uFFFDöö") || !strings.HasSuffix(task.Message, "ö...") {
		t.Errorf("message = %q, want valid text without control characters that shows that it was cut", task.Message)
	}
	if wait := task.NextTime.Sub(start); wait > 10*time.Minute+time.Second {
		t.Errorf("called again after %s, want at most 10 minutes", wait)
	}
}
