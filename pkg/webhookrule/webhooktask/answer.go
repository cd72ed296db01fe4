package webhooktask

import (
	"slices"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

// Classes of failures that this package returns. The HTTP client returns all other classes.
const (
	// ClassRejected means that the service rejected the pods.
	ClassRejected = "Rejected"

	// ClassStopped means that the service gave up the task.
	ClassStopped = "Stopped"

	// ClassExpired means that the service did not finish within the timeout of the poll.
	ClassExpired = "Expired"

	// ClassInterrupted means that the manager ended during the POST. It is not known whether the
	// service received it.
	ClassInterrupted = "Interrupted"

	// ClassBadResponse means that the answer does not follow the protocol.
	ClassBadResponse = "BadResponse"
)

// PostAnswer is the answer of a service to a POST.
type PostAnswer struct {
	// Success means that all pods are approved; or, with Poll or Async, that the service has accepted
	// the task.
	Success bool

	// Message has at most rule.MaxMessageBytes bytes.
	Message string

	// FinishedNames are the pods that are approved although Success is false. They may include names that
	// the call did not contain.
	FinishedNames []string

	// Poll and Async mean that the result must be polled. Async is the older name.
	Poll, Async bool

	// TaskID is the id to poll with: the taskId of the answer, or else its traceId. It has at most
	// MaxTaskIDBytes, and is not empty if Success and one of Poll and Async are set: the client
	// rejects other answers. TraceID is the traceId of the answer; often empty.
	TaskID, TraceID string
}

// PollAnswer is the answer of a service to a poll.
type PollAnswer struct {
	// Success means that the service could evaluate the poll. Without it no pod is approved.
	Success bool

	// Finished means that all pods are approved, Stop that the service has given up the task.
	Finished, Stop bool

	// Message has at most rule.MaxMessageBytes bytes.
	Message string

	// FinishedNames are the pods that are approved up to this answer.
	FinishedNames []string
}

// Failure is the reason why there is no answer.
type Failure struct {
	Class   string
	Message string

	// RetryAfter is the delay that the service requires before the next call; 0 without such a
	// delay.
	RetryAfter time.Duration
}

// Posted records the answer to a POST. Without Poll or Async the answer is final: on success all
// pods are approved, otherwise the pods in FinishedNames. unknown has the sorted names that the
// call did not contain; they approve nothing. An answer to a task that does not wait for it changes
// nothing.
func (t Tasks) Posted(traceID string, answer PostAnswer, rule Rule, now time.Time) (next Tasks, unknown []string) {
	task, i, found := t.find(traceID, appsv1alpha1.TaskPosting, rule)
	if !found {
		return t, nil
	}
	if answer.Success && (answer.Poll || answer.Async) {
		return t.accepted(task, i, answer, rule, now)
	}
	task, unknown = approved(task, answer.FinishedNames)
	if answer.Success {
		task = allApproved(task)
	}
	return t.replaced(i, rejected(task, answer.Message, rule, now)), unknown
}

// accepted records that the service has accepted the task and must be polled.
func (t Tasks) accepted(task appsv1alpha1.TaskInfo, i int, answer PostAnswer, rule Rule, now time.Time) (next Tasks, unknown []string) {
	if !rule.Polls {
		const problem = "the service requires polling, but the rule has no webhook.clientConfig.poll"
		return t.replaced(i, failed(task, Failure{Class: ClassBadResponse, Message: problem}, now)), nil
	}
	task, unknown = approved(task, answer.FinishedNames)
	task.Phase, task.TaskID, task.QueryKey, task.Answered = appsv1alpha1.TaskPolling, answer.TaskID, queryKey(rule, answer), true
	if len(task.Processing) == 0 {
		return t.replaced(i, finished(task, "", answer.Message, now)), unknown
	}
	task.Message, task.LastTime = shortened(answer.Message), second(now)
	return t.replaced(i, task), unknown
}

// PostFailed records a failed POST, which may never have been sent: its id is used up in any case.
func (t Tasks) PostFailed(traceID string, failure Failure, rule Rule, now time.Time) Tasks {
	task, i, found := t.find(traceID, appsv1alpha1.TaskPosting, rule)
	if !found {
		return t
	}
	return t.replaced(i, failed(task, failure, now))
}

// Polled records the answer to a poll. Pods in FinishedNames are approved at once; when the task is
// finished, all are. Both require Success: a service that could not evaluate the poll approves
// nothing. unknown is as with Posted.
func (t Tasks) Polled(traceID string, answer PollAnswer, rule Rule, now time.Time) (next Tasks, unknown []string) {
	before, i, found := t.find(traceID, appsv1alpha1.TaskPolling, rule)
	if !found {
		return t, nil
	}
	names := answer.FinishedNames
	if !answer.Success {
		names = nil
	}
	task, unknown := approved(before, names)
	switch {
	case answer.Finished && answer.Success:
		task = finished(allApproved(task), "", answer.Message, now)
	case answer.Finished:
		task = finished(task, ClassRejected, answer.Message, now)
	case answer.Stop:
		task = finished(task, ClassStopped, answer.Message, now)
	case len(task.Processing) == 0:
		task = finished(task, "", answer.Message, now)
	case len(task.Approved) > len(before.Approved):
		task.Reason, task.Message, task.LastTime = "", shortened(answer.Message), second(now)
	default:
		return t.withMessage(i, "", answer.Message, now), unknown
	}
	return t.replaced(i, task), unknown
}

// PollFailed records a failed poll. The task continues: the approval may still come, and the
// timeout bounds the wait.
func (t Tasks) PollFailed(traceID string, failure Failure, rule Rule, now time.Time) Tasks {
	_, i, found := t.find(traceID, appsv1alpha1.TaskPolling, rule)
	if !found {
		return t
	}
	return t.withMessage(i, failure.Class, failure.Message, now)
}

// messageEvery bounds how often a new message alone causes a write: a service that counts the
// seconds in its message would otherwise cause a write with each poll.
const messageEvery = 30 * time.Second

// withMessage sets the latest reason and message of a task that continues.
func (t Tasks) withMessage(index int, reason, message string, now time.Time) Tasks {
	task := *t.states[index].DeepCopy()
	reason, message = text.Line(reason, maxReasonBytes), shortened(message)
	same := task.Reason == reason && task.Message == message
	if same || now.Sub(task.LastTime.Time) < messageEvery {
		return t
	}
	task.Reason, task.Message, task.LastTime = reason, message, second(now)
	return t.replaced(index, task)
}

// approved moves the pods with the given names to the approved pods. unknown has the sorted names
// of no pod in the task.
func approved(task appsv1alpha1.TaskInfo, names []string) (next appsv1alpha1.TaskInfo, unknown []string) {
	named := map[string]bool{}
	for _, name := range names {
		named[name] = true
	}
	known := map[string]bool{}
	for _, pod := range slices.Concat(task.Processing, task.Approved) {
		known[pod.Name] = true
	}
	for name := range named {
		if !known[name] {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	var rest []appsv1alpha1.TaskPod
	moved := slices.Clone(task.Approved)
	for _, pod := range task.Processing {
		if named[pod.Name] {
			moved = append(moved, pod)
		} else {
			rest = append(rest, pod)
		}
	}
	task.Processing, task.Approved = rest, moved
	return task, unknown
}

func allApproved(task appsv1alpha1.TaskInfo) appsv1alpha1.TaskInfo {
	task.Approved, task.Processing = slices.Concat(task.Approved, task.Processing), nil
	return task
}

// finished ends a task with the final answer of the service. reason is why the remaining pods were
// not approved.
func finished(task appsv1alpha1.TaskInfo, reason, message string, now time.Time) appsv1alpha1.TaskInfo {
	task.Answered = true
	return ended(task, appsv1alpha1.TaskFinished, Failure{Class: reason, Message: message}, now)
}

// rejected ends a task whose POST got a final answer. A rejection is not a failure, and may soon
// change, so the service is called again for the remaining pods at a steady interval.
func rejected(task appsv1alpha1.TaskInfo, message string, rule Rule, now time.Time) appsv1alpha1.TaskInfo {
	task = finished(task, ClassRejected, message, now)
	if len(task.Processing) > 0 {
		next := roundedUp(now.Add(spread(rule.RejectionRetry, task.TraceID)))
		task.NextTime, task.Attempts = &next, 0
	}
	return task
}

// failed ends a task whose service could not be called, or did not finish in time.
func failed(task appsv1alpha1.TaskInfo, failure Failure, now time.Time) appsv1alpha1.TaskInfo {
	return ended(task, appsv1alpha1.TaskFailed, failure, now)
}

func ended(task appsv1alpha1.TaskInfo, phase appsv1alpha1.TaskPhase, why Failure, now time.Time) appsv1alpha1.TaskInfo {
	task.Phase, task.Message, task.LastTime = phase, shortened(why.Message), second(now)
	if len(task.Processing) == 0 {
		return withoutFailure(task)
	}
	if len(task.Approved) > 0 {
		// The service approves pods, so earlier rejections no longer count.
		task.Attempts = 0
	}
	wait := interruptedDelay
	if why.Class != ClassInterrupted {
		task.Attempts++
		wait = delay(task.Attempts, why.RetryAfter)
	}
	next := roundedUp(now.Add(wait))
	task.Reason, task.NextTime = text.Line(why.Class, maxReasonBytes), &next
	return task
}

// withoutFailure clears the failure of a task: no pod of it waits for another call.
func withoutFailure(task appsv1alpha1.TaskInfo) appsv1alpha1.TaskInfo {
	task.Phase, task.Reason, task.NextTime, task.Attempts, task.Answered = appsv1alpha1.TaskFinished, "", nil, 0, false
	return task
}

// queryKey returns the query parameter for the id of a task.
func queryKey(rule Rule, answer PostAnswer) string {
	switch {
	case rule.QueryKey != "":
		return rule.QueryKey
	case answer.Async:
		return keyBoth
	}
	return keyTaskID
}
