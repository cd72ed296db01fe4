package webhooktask

import (
	"fmt"
	"slices"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/rule"
)

// Reasons of calls that are in history because nobody is interested in them any more.
const (
	reasonRuleEdited = "RuleEdited"
	reasonNobody     = "NobodyWaits"
)

// Interrupted ends the POSTs that were written down by a process that is gone. known says whether
// this one has the call under way, or its result in hand.
func (t Tasks) Interrupted(known func(traceID string) bool, now time.Time) Tasks {
	return t.endWhere(func(task appsv1alpha1.TaskInfo) (Failure, bool) {
		return Failure{
			Class:   ClassInterrupted,
			Message: "the manager ended during the call; whether the service has seen it is not known",
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

// expiry says what is known of a task that did not end in time.
func expiry(task appsv1alpha1.TaskInfo, rule Rule) string {
	message := fmt.Sprintf("the service did not end within %s", rule.Timeout)
	switch {
	case task.Reason != "":
		return message + "; polling it failed at last: " + task.Message
	case task.Message != "":
		return message + "; it last said: " + task.Message
	}
	return message
}

// deadline of a task that is polled. The begin was cut to a whole second, which is given back.
func deadline(task appsv1alpha1.TaskInfo, rule Rule) time.Time {
	return task.BeginTime.Add(rule.Timeout + time.Second)
}

// endWhere fails the tasks for which why says so.
func (t Tasks) endWhere(why func(appsv1alpha1.TaskInfo) (Failure, bool), now time.Time) Tasks {
	next := t
	for i, task := range t.states {
		if failure, ends := why(task); ends {
			next = next.replaced(i, failed(*task.DeepCopy(), failure, now))
		}
	}
	return next
}

// Forget drops what counts no more: tasks of other generations of the rule, and pods of ended
// tasks that do not wait any more. An open task keeps all its pods, since services name them in
// later answers, too, and ends when none is left that waits for it. waiting are all requests that
// wait and that the rule applies to, whatever other rules say of them.
func (t Tasks) Forget(waiting []rule.Request, rule Rule, now time.Time) Tasks {
	waits := map[appsv1alpha1.TaskPod]bool{}
	for _, request := range waiting {
		waits[podOf(request)] = true
	}
	stays := func(pod appsv1alpha1.TaskPod) bool { return waits[pod] }
	next := Tasks{history: t.history}
	changed := false
	for _, task := range t.states {
		kept, gone := remaining(task, stays, rule, now)
		if gone != nil {
			next.history = remembered(next.history, *gone, now)
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

// remaining is what stays of a task, and what of it goes to history; one of them is nil.
func remaining(
	task appsv1alpha1.TaskInfo, stays func(appsv1alpha1.TaskPod) bool, rule Rule, now time.Time,
) (kept, gone *appsv1alpha1.TaskInfo) {
	if task.RuleGeneration != rule.Generation {
		return nil, dropped(task, reasonRuleEdited, "the rule was edited; its pods are asked about again")
	}
	if isOpen(task) && slices.ContainsFunc(task.Processing, stays) {
		return &task, nil
	}
	rest := only(task, stays)
	switch {
	case len(rest.Processing)+len(rest.Approved) == 0:
		return nil, dropped(task, reasonNobody, "no pod waits for it any more")
	case len(rest.Processing)+len(rest.Approved) < len(task.Processing)+len(task.Approved):
		rest.LastTime = second(now)
	}
	if len(rest.Processing) == 0 {
		rest = settled(rest)
	}
	return &rest, nil
}

// dropped is a task as history shows it: one that had ended tells how, any other why it is not
// followed any more.
func dropped(task appsv1alpha1.TaskInfo, reason, message string) *appsv1alpha1.TaskInfo {
	if isOpen(task) {
		task.Phase, task.Reason, task.Message = appsv1alpha1.TaskFailed, reason, message
	}
	return &task
}

// only has just the pods that stay.
func only(task appsv1alpha1.TaskInfo, stays func(appsv1alpha1.TaskPod) bool) appsv1alpha1.TaskInfo {
	task.Processing = filtered(task.Processing, stays)
	task.Approved = filtered(task.Approved, stays)
	return task
}

// filtered is nil when nothing stays, as it will be read.
func filtered(pods []appsv1alpha1.TaskPod, stays func(appsv1alpha1.TaskPod) bool) []appsv1alpha1.TaskPod {
	var kept []appsv1alpha1.TaskPod
	for _, pod := range pods {
		if stays(pod) {
			kept = append(kept, pod)
		}
	}
	return kept
}
