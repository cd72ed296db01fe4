package webhooktask_test

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
)

// unchanged runs one step, and checks that it changed neither its receiver nor its arguments.
func unchanged(t *rapid.T, name string, tasks webhooktask.Tasks, m *machine, do func(webhooktask.Tasks) webhooktask.Tasks) webhooktask.Tasks {
	before, requests := tasks.Status(m.now), m.waiting()
	next := do(tasks)
	if diff := cmp.Diff(before, tasks.Status(m.now)); diff != "" {
		t.Fatalf("%s changed its receiver (-before +after):\n%s", name, diff)
	}
	if diff := cmp.Diff(requests, m.waiting()); diff != "" {
		t.Fatalf("%s changed its arguments (-before +after):\n%s", name, diff)
	}
	return next
}

// checkPost checks that each request of a call needs one, and is due.
func (m *machine) checkPost(t *rapid.T, before webhooktask.Tasks, post webhooktask.Post) {
	if len(post.Requests) == 0 {
		t.Fatalf("%s has no pods", post.TraceID)
	}
	for _, request := range post.Requests {
		task := before.Of(request, m.rule, m.now)
		if task.State != "" && (task.State != rule.TaskFailed || !task.RetryDue || m.now.Before(task.RetryAt)) {
			t.Fatalf("%s calls for %s, which is %+v at %v", post.TraceID, request.Key(), task, m.now)
		}
	}
}

// checkBounds checks that the status fits, and that no pod is in two tasks.
func (m *machine) checkBounds(t *rapid.T, tasks webhooktask.Tasks) {
	status := tasks.Status(m.now)
	if status == nil {
		return
	}
	if len(status.TaskStates) > m.rule.States || len(status.History) > appsv1alpha1.MaxStatusTaskHistory {
		t.Fatalf("%d tasks and %d in history", len(status.TaskStates), len(status.History))
	}
	if open, _ := tasks.Running(); open > appsv1alpha1.MaxStatusTasks {
		t.Fatalf("%d tasks are open", open)
	}
	traces, entries := map[string]bool{}, map[appsv1alpha1.TaskPod]bool{}
	for _, task := range status.TaskStates {
		if traces[task.TraceID] {
			t.Fatalf("%s is listed twice", task.TraceID)
		}
		traces[task.TraceID] = true
		if len(task.Processing) > appsv1alpha1.MaxStatusTaskPods || len(task.Approved) > appsv1alpha1.MaxStatusTaskPods {
			t.Fatalf("%s has too many pods", task.TraceID)
		}
		for _, pod := range slices.Concat(task.Processing, task.Approved) {
			if entries[pod] {
				t.Fatalf("%v is in two tasks", pod)
			}
			entries[pod] = true
		}
	}
}

// check is the invariant after every step.
func (m *machine) check(t *rapid.T) {
	status := m.read()
	tasks := webhooktask.FromStatus(status)
	written, err := json.Marshal(tasks.Status(m.now))
	if err != nil {
		t.Fatal(err)
	}
	again := &appsv1alpha1.WebhookStatus{}
	if err := json.Unmarshal(written, &again); err != nil {
		t.Fatal(err)
	}
	if status != nil { // history may have become too old meanwhile
		status.History = slices.DeleteFunc(status.History, func(task appsv1alpha1.TaskInfo) bool {
			return m.now.Sub(task.LastTime.Time) >= 10*time.Minute
		})
		if len(status.History) == 0 {
			status.History = nil
		}
		if len(status.TaskStates)+len(status.History) == 0 {
			status = nil
		}
	}
	if diff := cmp.Diff(status, again); diff != "" {
		t.Fatalf("status is not what was written (-read +written):\n%s", diff)
	}
	m.checkAnswered(t, tasks)
	for _, request := range m.waiting() {
		if tasks.Of(request, m.rule, m.now).State == rule.TaskApproved && !m.service.approves(request, m.rule.Generation) {
			t.Fatalf("%s is approved, and the service has not approved it", request.Key())
		}
	}
	if m.rule.States < 32 || status == nil {
		return // at the limit, tasks are merged
	}
	for _, task := range status.TaskStates {
		for _, pod := range task.Approved {
			if !m.service.approved[approvalOf{task.TraceID, pod}] {
				t.Fatalf("%v is approved in %s, and the service has not approved it there", pod, task.TraceID)
			}
		}
	}
}

// checkAnswered checks that an answer in status is kept as long as the pod waits, and that no other
// answer appears.
func (m *machine) checkAnswered(t *rapid.T, tasks webhooktask.Tasks) {
	for _, request := range m.waiting() {
		pod := appsv1alpha1.TaskPod{UID: request.Pod.UID, Name: request.Pod.Name, ID: request.ID, Generation: request.Attempt}
		task := tasks.Of(request, m.rule, m.now)
		if task.State == rule.TaskApproved {
			continue
		}
		if want := m.answered[answeredTo{pod, m.rule.Generation}]; task.Answered != want {
			t.Fatalf("%s is %+v, want answered %v", request.Key(), task, want)
		}
	}
}

// approves reports whether the service approved this pod, for this operation, in a call under that
// generation.
func (s *service) approves(request rule.Request, generation int64) bool {
	for given := range s.approved {
		if given.pod.UID == request.Pod.UID && given.pod.ID == request.ID && given.pod.Generation == request.Attempt &&
			s.rules[given.traceID] == generation {
			return true
		}
	}
	return false
}
