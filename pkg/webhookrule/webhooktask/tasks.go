package webhooktask

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// historyTime is the time for which an ended call is shown.
const historyTime = 10 * time.Minute

// historyPods bounds the pods of an ended call that are shown, of each list.
const historyPods = 5

// Tasks are the calls of one webhook rule. The zero value has no calls. Values are immutable:
// every method leaves its receiver and its arguments unchanged, and returns the new value.
type Tasks struct {
	// states are the current tasks, oldest first. Their ids differ.
	states []appsv1alpha1.TaskInfo

	// history are the tasks that no longer count, newest first.
	history []appsv1alpha1.TaskInfo

	// places maps pods to their index in states.
	places map[place]int
}

// place is the key of a request.
type place struct {
	pod        appsv1alpha1.TaskPod
	generation int64
}

// FromStatus reads a status that Status returned. status may be nil.
func FromStatus(status *appsv1alpha1.WebhookStatus) Tasks {
	if status == nil {
		return Tasks{}
	}
	read := status.DeepCopy()
	return newTasks(read.TaskStates, read.History)
}

func newTasks(states, history []appsv1alpha1.TaskInfo) Tasks {
	places := make(map[place]int, len(states))
	for i, task := range states {
		for _, pod := range task.Processing {
			places[place{pod, task.RuleGeneration}] = i
		}
	}
	// Approved pods come last: an approval is valid with any result of other calls.
	for i, task := range states {
		for _, pod := range task.Approved {
			places[place{pod, task.RuleGeneration}] = i
		}
	}
	return Tasks{states: states, history: history, places: places}
}

// Status returns the status to write, or nil. Times are whole seconds. It changes only when a
// method has returned another value, or when history has become too old.
func (t Tasks) Status(now time.Time) *appsv1alpha1.WebhookStatus {
	status := &appsv1alpha1.WebhookStatus{}
	for _, task := range t.states {
		status.TaskStates = append(status.TaskStates, *task.DeepCopy())
	}
	for _, task := range t.history {
		if now.Sub(task.LastTime.Time) < historyTime {
			status.History = append(status.History, *task.DeepCopy())
		}
	}
	if len(status.TaskStates) == 0 && len(status.History) == 0 {
		return nil
	}
	return status
}

// Running returns how many tasks are open, and when the oldest of them began; zero without any.
func (t Tasks) Running() (count int, oldest time.Time) {
	for _, task := range t.states {
		if !isOpen(task) {
			continue
		}
		count++
		if oldest.IsZero() || task.BeginTime.Time.Before(oldest) {
			oldest = task.BeginTime.Time
		}
	}
	return count, oldest
}

// Of returns the state of a request.
func (t Tasks) Of(request rule.Request, ruleset Rule, now time.Time) rule.Task {
	i, found := t.places[place{newTaskPod(request), ruleset.Generation}]
	if !found {
		return rule.Task{}
	}
	task := t.states[i]
	switch {
	case slices.Contains(task.Approved, newTaskPod(request)):
		return rule.Task{State: rule.TaskApproved, Message: task.Message}
	case task.Phase == appsv1alpha1.TaskPosting:
		return rule.Task{State: rule.TaskCalling, Message: task.Message, Answered: isAnswered(task)}
	case task.Phase == appsv1alpha1.TaskPolling:
		return rule.Task{State: rule.TaskPolling, Message: task.Message, Answered: true}
	}
	failed := rule.Task{
		State:    rule.TaskFailed,
		Class:    cmp.Or(task.Reason, ClassRejected), // an answer without a reason is a rejection
		Message:  task.Message,
		RetryDue: true,
		Answered: isAnswered(task),
	}
	if task.NextTime != nil {
		failed.RetryAt = retryTime(task, now)
		failed.RetryDue = !now.Before(failed.RetryAt)
	}
	return failed
}

func newTaskPod(request rule.Request) appsv1alpha1.TaskPod {
	return appsv1alpha1.TaskPod{
		UID: request.Pod.UID, Name: request.Pod.Name, ID: request.ID, Generation: request.Attempt,
	}
}

// isOpen reports whether the task waits for an answer.
func isOpen(task appsv1alpha1.TaskInfo) bool {
	return task.Phase == appsv1alpha1.TaskPosting || task.Phase == appsv1alpha1.TaskPolling
}

// isAnswered reports whether the service has answered for the pods that the task has not approved.
// In a status from before the field answered, the phase, and the reasons that follow an answer,
// show it.
func isAnswered(task appsv1alpha1.TaskInfo) bool {
	switch {
	case task.Answered, task.Phase == appsv1alpha1.TaskPolling:
		return true
	case len(task.Processing) == 0, isOpen(task):
		return false
	default:
		return task.Reason == "" || task.Reason == ClassRejected || task.Reason == ClassStopped || task.Reason == ClassExpired
	}
}

// find returns a copy of an open task in this generation of the rule. An answer to any other task
// came twice or too late, and is ignored.
func (t Tasks) find(traceID string, phase appsv1alpha1.TaskPhase, rule Rule) (task appsv1alpha1.TaskInfo, index int, found bool) {
	for i, task := range t.states {
		if task.TraceID == traceID && task.Phase == phase && task.RuleGeneration == rule.Generation {
			return *task.DeepCopy(), i, true
		}
	}
	return appsv1alpha1.TaskInfo{}, 0, false
}

// replaced returns t with another state of one task.
func (t Tasks) replaced(index int, task appsv1alpha1.TaskInfo) Tasks {
	states := slices.Clone(t.states)
	states[index] = task
	return newTasks(states, t.history)
}

// withHistory puts a task first in a history.
func withHistory(history []appsv1alpha1.TaskInfo, task appsv1alpha1.TaskInfo, now time.Time) []appsv1alpha1.TaskInfo {
	task.LastTime, task.NextTime = second(now), nil
	task.Processing = slices.Clip(task.Processing[:min(len(task.Processing), historyPods)])
	task.Approved = slices.Clip(task.Approved[:min(len(task.Approved), historyPods)])
	longer := append([]appsv1alpha1.TaskInfo{task}, history...)
	return longer[:min(len(longer), appsv1alpha1.MaxStatusTaskHistory)]
}

// second returns a time as status stores it, so that a written time equals the time that is read.
func second(at time.Time) metav1.Time { return metav1.NewTime(at.Truncate(time.Second)) }
