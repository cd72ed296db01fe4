package webhooktask_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
)

// calledFor returns the names of the pods of each call.
func calledFor(posts []webhooktask.Post) [][]string {
	calls := [][]string{}
	for _, post := range posts {
		names := []string{}
		for _, request := range post.Requests {
			names = append(names, request.Pod.Name)
		}
		calls = append(calls, names)
	}
	return calls
}

func names(requests []rule.Request) []string {
	found := []string{}
	for _, request := range requests {
		found = append(found, request.Pod.Name)
	}
	return found
}

// each returns one task for each pod, opened one after the other, and answered.
func each(requests []rule.Request, answer webhooktask.PostAnswer, ruleset webhooktask.Rule) webhooktask.Tasks {
	tasks, newID := webhooktask.Tasks{}, ids()
	for _, request := range requests {
		next, posts := tasks.Open([]rule.Request{request}, ruleset, start, newID)
		tasks = next
		for _, post := range posts {
			tasks, _ = tasks.Posted(post.TraceID, answer, ruleset, start)
		}
	}
	return tasks
}

func TestACallIsRecordedAsATask(t *testing.T) {
	tasks, posts := webhooktask.Tasks{}.Open(requestsOf("web-0"), polled(), start, ids())
	want := appsv1alpha1.TaskInfo{
		TraceID: "t1", Phase: appsv1alpha1.TaskPosting, RuleGeneration: 1, Processing: pods("web-0"),
		BeginTime: whole(0), LastTime: whole(0),
	}
	if diff := cmp.Diff(want, theTask(t, tasks, start)); diff != "" {
		t.Errorf("task (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]webhooktask.Post{{TraceID: "t1", Requests: requestsOf("web-0")}}, posts); diff != "" {
		t.Errorf("posts (-want +got):\n%s", diff)
	}
}

func TestRequestsShareACallOldestFirst(t *testing.T) {
	waiting := many("web", 30)
	shuffled := slices.Concat(waiting[10:], waiting[:10], waiting[5:15]) // some of them are duplicates
	_, posts := webhooktask.Tasks{}.Open(shuffled, polled(), start, ids())
	if diff := cmp.Diff([][]string{names(waiting[:25]), names(waiting[25:])}, calledFor(posts)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestRequestsThatNeedNoCall(t *testing.T) {
	approvedOnes, _ := opened("web-0").Posted("t1", webhooktask.PostAnswer{Success: true}, polled(), start)
	for name, tc := range map[string]struct {
		tasks webhooktask.Tasks
		now   int
		want  [][]string
	}{
		"one with a call in flight":             {tasks: opened("web-0"), now: 1000, want: [][]string{}},
		"one that the service works on":         {tasks: polling("web-0"), now: 1000, want: [][]string{}},
		"one that is approved":                  {tasks: approvedOnes, now: 1000, want: [][]string{}},
		"one that failed, before its time":      {tasks: broken("web-0"), now: 10, want: [][]string{}},
		"but one that failed, when it has come": {tasks: broken("web-0"), now: 11, want: [][]string{{"web-0"}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, posts := tc.tasks.Open(requestsOf("web-0"), polled(), after(tc.now), func() string { return "t2" })
			if diff := cmp.Diff(tc.want, calledFor(posts)); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPodsThatFailedTogetherShareTheNextCall(t *testing.T) {
	tasks, _ := opened("web-0", "web-1", "web-2").Posted("t1", webhooktask.PostAnswer{FinishedNames: []string{"web-1"}}, polled(), start)
	newer := requestOf("web-3")
	newer.Since = after(1)
	newID := ids()
	tasks, posts := tasks.Open(append(requestsOf("web-0", "web-2"), newer), polled(), after(20), func() string { return "again-" + newID() })
	if diff := cmp.Diff([][]string{{"web-0", "web-2"}, {"web-3"}}, calledFor(posts)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	status := tasks.Status(after(20))
	want := []string{
		"t1 Finished attempts 0: [web-1] approved, [] not",
		"again-t1 Posting attempts 0: [] approved, [web-0 web-2] not",
		"again-t2 Posting attempts 0: [] approved, [web-3] not",
	}
	if diff := cmp.Diff(want, shown(status.TaskStates)); diff != "" {
		t.Errorf("tasks (-want +got):\n%s", diff)
	}
	if len(status.History) > 0 {
		t.Errorf("history = %v, want none: t1 counts for web-1", shown(status.History))
	}
}

func TestATaskWithoutPodsBecomesHistory(t *testing.T) {
	tasks, _ := broken("web-0").Open(requestsOf("web-0"), polled(), after(20), func() string { return "t2" })
	status := tasks.Status(after(20))
	if diff := cmp.Diff([]string{"t2 Posting attempts 1: [] approved, [web-0] not"}, shown(status.TaskStates)); diff != "" {
		t.Errorf("tasks (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"t1 Failed Unreachable attempts 1: [] approved, [web-0] not"}, shown(status.History)); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
}

// shown returns tasks in one line each.
func shown(tasks []appsv1alpha1.TaskInfo) []string {
	lines := []string{}
	for _, task := range tasks {
		reason := ""
		if task.Reason != "" {
			reason = " " + task.Reason
		}
		lines = append(lines, fmt.Sprintf("%s %s%s attempts %d: %v approved, %v not",
			task.TraceID, task.Phase, reason, task.Attempts, podNames(task.Approved), podNames(task.Processing)))
	}
	return lines
}

func podNames(pods []appsv1alpha1.TaskPod) []string {
	found := []string{}
	for _, pod := range pods {
		found = append(found, pod.Name)
	}
	return found
}

func TestOpenTasksAreBounded(t *testing.T) {
	waiting := many("web", 250)
	tasks, posts := webhooktask.Tasks{}.Open(waiting, polled(), start, ids())
	if len(posts) != 8 {
		t.Fatalf("%d calls, want 8", len(posts))
	}
	if got := tasks.Of(waiting[200], polled(), start).State; got != "" {
		t.Errorf("a pod above the limit is %s, want no state", got)
	}
	tasks, _ = tasks.Posted("t3", webhooktask.PostAnswer{Success: true}, polled(), start)
	_, posts = tasks.Open(waiting, polled(), start, func() string { return "t9" })
	if diff := cmp.Diff([][]string{names(waiting[200:225])}, calledFor(posts)); diff != "" {
		t.Errorf("calls once one has ended (-want +got):\n%s", diff)
	}
}

func TestPodsThatCameOneByOneDoNotUseUpTheTasks(t *testing.T) {
	waiting := many("web", 200)
	tasks := each(waiting, webhooktask.PostAnswer{Success: true}, polled())
	for _, request := range waiting {
		if got := tasks.Of(request, polled(), start).State; got != approved {
			t.Fatalf("%s is %q, want %s", request.Pod.Name, got, approved)
		}
	}
	if count := len(tasks.Status(start).TaskStates); count > 32 {
		t.Errorf("%d tasks, want at most 32", count)
	}
}

func TestMergedTasksKeepTheirState(t *testing.T) {
	small := polled()
	small.States = 2
	tasks, _ := each(many("a", 1), webhooktask.PostAnswer{}, small).Open(many("b", 1), small, after(5), func() string { return "t2" })
	tasks, _ = tasks.Posted("t2", webhooktask.PostAnswer{Message: "no"}, small, after(5))
	tasks, posts := tasks.Open(many("c", 1), small, after(6), func() string { return "t3" })
	if len(posts) != 1 {
		t.Fatalf("%d calls, want 1: the others fit into one task", len(posts))
	}
	for _, request := range slices.Concat(many("a", 1), many("b", 1)) {
		want := rule.Task{State: failed, Class: "Rejected", Answered: true, Message: "no", RetryAt: whole(18).Time}
		if diff := cmp.Diff(want, tasks.Of(request, small, after(6))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", request.Pod.Name, diff)
		}
	}
}

func TestNewPodsDoNotDisplaceRepeatedCalls(t *testing.T) {
	old := many("old", 24*25)
	tasks, newID := webhooktask.Tasks{}, ids()
	answered := func(requests []rule.Request, now int) int {
		next, posts := tasks.Open(requests, polled(), after(now), newID)
		tasks = next
		for _, post := range posts {
			tasks, _ = tasks.Posted(post.TraceID, webhooktask.PostAnswer{FinishedNames: names(post.Requests)[:1]}, polled(), after(now))
		}
		return len(posts)
	}
	for range 4 {
		answered(old, 0)
	}
	fresh := many("fresh", 25)
	if calls := answered(fresh, 1); calls != 0 {
		t.Errorf("%d calls for new pods, want 0: the free tasks are for others", calls)
	}
	if calls := answered(old, 20); calls != 8 {
		t.Errorf("%d calls about rejected pods, want 8", calls)
	}
	if got := len(tasks.Status(after(20)).TaskStates); got != 32 {
		t.Errorf("%d tasks, want 32", got)
	}
	// The approved pods no longer wait: there are free tasks again.
	left := slices.DeleteFunc(slices.Clone(old), func(request rule.Request) bool {
		return tasks.Of(request, polled(), after(30)).State == approved
	})
	tasks = tasks.Forget(left, polled(), after(30))
	if calls := answered(left, 40); calls != 8 {
		t.Errorf("%d calls about the rest, want 8", calls)
	}
}

func TestNamesakesAreNotInOneCall(t *testing.T) {
	ghost := requestOf("web-0") // still in the cache, for a moment
	ghost.Pod = &rule.PodFact{UID: "ghost", Name: "web-0"}
	_, posts := webhooktask.Tasks{}.Open([]rule.Request{requestOf("web-0"), ghost}, polled(), start, ids())
	if diff := cmp.Diff([][]string{{"web-0"}, {"web-0"}}, calledFor(posts)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}

	small := polled()
	small.States = 2
	tasks := each([]rule.Request{requestOf("web-0"), ghost}, webhooktask.PostAnswer{}, small)
	newID := ids()
	_, posts = tasks.Open([]rule.Request{requestOf("web-0"), ghost, requestOf("web-1")}, small, after(20), func() string { return "again-" + newID() })
	if diff := cmp.Diff([][]string{{"web-0"}, {"web-0"}}, calledFor(posts)); diff != "" {
		t.Errorf("calls after both were rejected (-want +got):\n%s", diff)
	}
}
