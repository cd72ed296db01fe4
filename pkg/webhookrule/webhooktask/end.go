package webhooktask

import (
	"fmt"
	"slices"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// Reasons of calls in history whose result is no longer needed.
const (
	reasonRuleEdited = "RuleEdited"
	reasonNoPodWaits = `NobodyWaits`
)

// Interrupted ends the POSTs that an earlier process recorded. known reports whether this process
// has the call in flight, or its result.
func (t Tasks) Interrupted(known func(traceID string) bool, now time.Time) Tasks {
	return t.endWhere(func(task appsv1alpha1.TaskInfo) (Failure, bool) {
		return Failure{
			Class:   ClassInterrupted,
			Message: "the manager ended during the call; it is not known whether the service received it",
		}, task.Phase == appsv1alpha1.TaskPosting && !known(task.TraceID)
	}, now)
}

// Expire ends the tasks that were polled for longer than the timeout of the rule.
func (t Tasks) Expire(rule Rule, now time.Time) Tasks {
	return t.endWhere(func(task appsv1alpha1.TaskInfo) (Failure, bool) {
		return Failure{Class: ClassExpired, Message: expiry(task, rule)},
			task.Phase == appsv1alpha1.TaskPolling && !now.Before(deadline(task, rule))
	}, now)
}

// expiry returns the message of an expired task.
func expiry(task appsv1alpha1.TaskInfo, rule Rule) string {
	message := fmt.Sprintf("the service did not finish within %s", rule.Timeout)
	switch {
	case task.Reason != "":
		return message + "; the last poll failed: " + task.Message
	case task.Message != "":
		return message + "; its last message: " + task.Message
	}
	return message
}

// deadline returns the deadline of a polled task. The stored time of begin was cut to a whole
// second, which is added again.
func deadline(task appsv1alpha1.TaskInfo, rule Rule) time.Time {
	return task.BeginTime.Add(rule.Timeout + time.Second)
}

// endWhere fails the tasks for which why returns true.
func (t Tasks) endWhere(why func(appsv1alpha1.TaskInfo) (Failure, bool), now time.Time) Tasks {
	next := t
	for i, task := range t.states {
		if failure, ends := why(task); ends {
			next = next.replaced(i, failed(*task.DeepCopy(), failure, now))
		}
	}
	return next
}

// Forget removes the rule's tasks of other generations, and pods of ended tasks that no longer
// wait. An open task keeps all its pods, since services may name them in later answers, and ends
// when none of its pods waits. waiting are all waiting requests that the rule applies to, with any
// verdict of other rules.
func (t Tasks) Forget(waiting []rule.Request, rule Rule, now time.Time) Tasks {
	waits := map[appsv1alpha1.TaskPod]bool{}
	for _, request := range waiting {
		waits[newTaskPod(request)] = true
	}
	stays := func(pod appsv1alpha1.TaskPod) bool { return waits[pod] }
	next := Tasks{history: t.history}
	changed := false
	for _, task := range t.states {
		kept, gone := remaining(task, stays, rule, now)
		if gone != nil {
			next.history = withHistory(next.history, *gone, now)
		}
		if kept != nil {
			next.states = append(next.states, *kept)
		}
		changed = changed || gone != nil || len(kept.Processing)+len(kept.Approved) < len(task.Processing)+len(task.Approved)
	}
	if !changed {
		return t
	}
	return newTasks(next.states, next.history)
}

// remaining returns the part of a task that is kept, and the task that goes to history; one of them
// is nil.
func remaining(
	task appsv1alpha1.TaskInfo, stays func(appsv1alpha1.TaskPod) bool, rule Rule, now time.Time,
) (kept, gone *appsv1alpha1.TaskInfo) {
	if task.RuleGeneration != rule.Generation {
		return nil, dropped(task, reasonRuleEdited, "the rule was edited; the service is called again for its pods")
	}
	if isOpen(task) && slices.ContainsFunc(task.Processing, stays) {
		return &task, nil
	}
	rest := restricted(task, stays)
	switch {
	case len(rest.Processing)+len(rest.Approved) == 0:
		return nil, dropped(task, reasonNoPodWaits, "no pod waits for it any more")
	case len(rest.Processing)+len(rest.Approved) < len(task.Processing)+len(task.Approved):
		rest.LastTime = second(now)
	}
	if len(rest.Processing) == 0 {
		rest = withoutFailure(rest)
	}
	return &rest, nil
}

// dropped returns a task for history: an open task gets the reason why it is dropped.
func dropped(task appsv1alpha1.TaskInfo, reason, message string) *appsv1alpha1.TaskInfo {
	if isOpen(task) {
		task.Phase, task.Reason, task.Message = appsv1alpha1.TaskFailed, reason, message
	}
	return &task
}

// restricted returns a task with only the pods that stay.
func restricted(task appsv1alpha1.TaskInfo, stays func(appsv1alpha1.TaskPod) bool) appsv1alpha1.TaskInfo {
	task.Processing = filtered(task.Processing, stays)
	task.Approved = filtered(task.Approved, stays)
	return task
}

// filtered returns nil if no pod stays, as a status without pods is decoded.
func filtered(pods []appsv1alpha1.TaskPod, stays func(appsv1alpha1.TaskPod) bool) []appsv1alpha1.TaskPod {
	var kept []appsv1alpha1.TaskPod
	for _, pod := range pods {
		if stays(pod) {
			kept = append(kept, pod)
		}
	}
	return kept
}
