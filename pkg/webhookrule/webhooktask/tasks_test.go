package webhooktask_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
)

// start is not a whole second, like most times.
var start = time.Date(2026, 11, 21, 12, 0, 0, 300e6, time.UTC)

func after(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

func whole(seconds int) metav1.Time { return metav1.NewTime(after(seconds).Truncate(time.Second)) }

// requestOf returns the request of a pod that waits with id x.
func requestOf(name string) rule.Request {
	return rule.Request{
		Pod:   &rule.PodFact{UID: types.UID(name + "-uid"), Name: name},
		Stage: appsv1alpha1.StagePreCheck, ID: "x", Attempt: "1", Since: start,
	}
}

func requestsOf(names ...string) []rule.Request {
	requests := []rule.Request{}
	for _, name := range names {
		requests = append(requests, requestOf(name))
	}
	return requests
}

// many returns pods in the order in which they began to wait.
func many(prefix string, count int) []rule.Request {
	requests := []rule.Request{}
	for i := range count {
		request := requestOf(fmt.Sprintf("%s-%03d", prefix, i))
		request.Since = after(i)
		requests = append(requests, request)
	}
	return requests
}

func pods(names ...string) []appsv1alpha1.TaskPod {
	var entries []appsv1alpha1.TaskPod
	for _, name := range names {
		entries = append(entries, appsv1alpha1.TaskPod{UID: types.UID(name + "-uid"), Name: name, ID: "x", Generation: "1"})
	}
	return entries
}

func polled() webhooktask.Rule {
	return webhooktask.Rule{Generation: 1, Polls: true, Interval: 5 * time.Second, Timeout: time.Minute, RejectionRetry: webhooktask.DefaultRejectionRetry, States: 32}
}

// ids returns t1, t2, ...
func ids() func() string {
	last := 0
	return func() string {
		last++
		return "t" + strconv.Itoa(last)
	}
}

// opened returns one task t1 for the pods.
func opened(names ...string) webhooktask.Tasks {
	tasks, _ := webhooktask.Tasks{}.Open(requestsOf(names...), polled(), start, ids())
	return tasks
}

// polling returns one task t1 that the service accepted under the id 7.
func polling(names ...string) webhooktask.Tasks {
	tasks, _ := opened(names...).Posted("t1", webhooktask.PostAnswer{Success: true, Poll: true, TaskID: "7"}, polled(), start)
	return tasks
}

// broken returns one task t1 whose call failed at the start.
func broken(names ...string) webhooktask.Tasks {
	return opened(names...).PostFailed("t1", webhooktask.Failure{Class: "Unreachable"}, polled(), start)
}

// rejected returns one task t1 that was rejected at the start.
func rejected(names ...string) webhooktask.Tasks {
	tasks, _ := opened(names...).Posted("t1", webhooktask.PostAnswer{}, polled(), start)
	return tasks
}

func theTask(t *testing.T, tasks webhooktask.Tasks, now time.Time) appsv1alpha1.TaskInfo {
	t.Helper()
	status := tasks.Status(now)
	if status == nil || len(status.TaskStates) != 1 {
		t.Fatalf("status = %+v, want one task", status)
	}
	return status.TaskStates[0]
}

// states returns the states of the pods, in their order.
func states(tasks webhooktask.Tasks, now time.Time, names ...string) []rule.TaskState {
	found := []rule.TaskState{}
	for _, request := range requestsOf(names...) {
		found = append(found, tasks.Of(request, polled(), now).State)
	}
	return found
}

func TestTheStateOfATaskForRules(t *testing.T) {
	retry := whole(13).Time // about 15 s later, in whole seconds
	partly, _ := opened("web-0", "web-1").Posted("t1", webhooktask.PostAnswer{FinishedNames: []string{"web-1"}, Message: "frozen"}, polled(), start)
	for name, tc := range map[string]struct {
		tasks webhooktask.Tasks
		now   time.Time
		want  rule.Task
	}{
		"nothing before the first call": {tasks: webhooktask.Tasks{}, now: start, want: rule.Task{}},
		"nothing for another pod":       {tasks: opened("web-1"), now: start, want: rule.Task{}},
		"the call is under way":         {tasks: opened("web-0"), now: start, want: rule.Task{State: rule.TaskCalling}},
		"the service is polled":         {tasks: polling("web-0"), now: start, want: rule.Task{State: rule.TaskPolling, Answered: true}},
		"the service rejected the pod": {
			tasks: partly, now: after(1),
			want: rule.Task{State: rule.TaskFailed, Class: "Rejected", Answered: true, Message: "frozen", RetryAt: retry},
		},
		"just before the next call": {
			tasks: partly, now: retry.Add(-time.Nanosecond),
			want: rule.Task{State: rule.TaskFailed, Class: "Rejected", Answered: true, Message: "frozen", RetryAt: retry},
		},
		"the next call is due": {
			tasks: partly, now: retry,
			want: rule.Task{State: rule.TaskFailed, Class: "Rejected", Answered: true, Message: "frozen", RetryAt: retry, RetryDue: true},
		},
		"a failure without a reason is a rejection": {
			tasks: webhooktask.FromStatus(&appsv1alpha1.WebhookStatus{TaskStates: []appsv1alpha1.TaskInfo{
				{TraceID: "t", Phase: appsv1alpha1.TaskFailed, RuleGeneration: 1, Processing: pods("web-0")},
			}}),
			now:  start,
			want: rule.Task{State: rule.TaskFailed, Class: "Rejected", Answered: true, RetryDue: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.tasks.Of(requestOf("web-0"), polled(), tc.now)); diff != "" {
				t.Errorf("task (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnApprovalCountsForOnePodOneWaitingAndOneGenerationOfTheRule(t *testing.T) {
	tasks, _ := opened("web-0").Posted("t1", webhooktask.PostAnswer{Success: true}, polled(), start)
	same := requestOf("web-0")
	reborn, again, other := requestOf("web-0"), requestOf("web-0"), requestOf("web-0")
	reborn.Pod = &rule.PodFact{UID: "another-uid", Name: "web-0"}
	again.Attempt = "2"
	other.ID = "y"
	edited := polled()
	edited.Generation = 2
	for name, tc := range map[string]struct {
		request rule.Request
		rule    webhooktask.Rule
		want    rule.TaskState
	}{
		"the request that was approved":       {request: same, rule: polled(), want: rule.TaskApproved},
		"another pod of the same name":        {request: reborn, rule: polled()},
		"the same pod, waiting another time":  {request: again, rule: polled()},
		"the same pod, with another id":       {request: other, rule: polled()},
		"the same request, of an edited rule": {request: same, rule: edited},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tasks.Of(tc.request, tc.rule, start).State; got != tc.want {
				t.Errorf("state = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestStatusIsNilWhenThereIsNothing(t *testing.T) {
	if status := (webhooktask.Tasks{}).Status(start); status != nil {
		t.Errorf("status of nothing = %+v, want nil", status)
	}
	if status := webhooktask.FromStatus(nil).Status(start); status != nil {
		t.Errorf("status of what was read from nil = %+v, want nil", status)
	}
}

func TestStatusSharesNothing(t *testing.T) {
	tasks := polling("web-0")
	tasks.Status(start).TaskStates[0].Processing[0].Name = "spoilt"
	written := tasks.Status(start)
	read := webhooktask.FromStatus(written)
	written.TaskStates[0].Processing[0].Name = "spoilt"
	for _, tasks := range []webhooktask.Tasks{tasks, read} {
		if got := theTask(t, tasks, start).Processing[0].Name; got != "web-0" {
			t.Errorf("pod = %s: the change of the copy is visible", got)
		}
	}
}

func TestRunningAreTheOpenTasks(t *testing.T) {
	tasks := opened("web-0")
	tasks, _ = tasks.Open(requestsOf("web-1"), polled(), after(5), func() string { return "t2" })
	if count, oldest := tasks.Running(); count != 2 || !oldest.Equal(whole(0).Time) {
		t.Errorf("running = %d since %v, want 2 since %v", count, oldest, whole(0))
	}
	tasks, _ = tasks.Posted("t1", webhooktask.PostAnswer{Success: true}, polled(), after(6))
	if count, oldest := tasks.Running(); count != 1 || !oldest.Equal(whole(5).Time) {
		t.Errorf("running = %d since %v, want 1 since %v", count, oldest, whole(5))
	}
	if count, oldest := rejected("web-0").Running(); count != 0 || !oldest.IsZero() {
		t.Errorf("running = %d since %v, want nothing", count, oldest)
	}
}
