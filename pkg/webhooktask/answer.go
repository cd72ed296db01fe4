package webhooktask

import (
	"fmt"
	"slices"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/text"
)

// Classes of failures that are found here. All others are those of the HTTP client.
const (
	// ClassRejected: the service said no.
	ClassRejected = "Rejected"

	// ClassStopped: the service gave up.
	ClassStopped = "Stopped"

	// ClassExpired: the service did not end within the timeout of the poll.
	ClassExpired = "Expired"

	// ClassInterrupted: the manager ended during the POST. Whether the service has seen it,
	// nobody knows.
	ClassInterrupted = "Interrupted"

	// ClassBadResponse: the answer makes no sense.
	ClassBadResponse = "BadResponse"
)

// PostAnswer is the answer of a service to a POST.
type PostAnswer struct {
	// Success: all pods are approved; with Poll or Async, the service has accepted the task.
	Success bool

	// Message has at most rule.MaxMessageBytes bytes.
	Message string

	// FinishedNames are the pods that are approved although Success is false. They may include names that
	// the call did not contain.
	FinishedNames []string

	// Poll: the result is to be polled for. Async is its older name.
	Poll, Async bool

	// TaskID to poll with: the taskId of the answer, or else its traceId. It is never empty when Success
	// and one of Poll and Async hold. TraceID of the answer is often empty.
	TaskID, TraceID string
}

// PollAnswer is the answer of a service to a poll.
type PollAnswer struct {
	// Success: the service has an answer. Without it no pod is approved.
	Success bool

	// Finished: all pods are approved. Stop: the service has ended the task without that.
	Finished, Stop bool

	// Message has at most rule.MaxMessageBytes bytes.
	Message string

	// FinishedNames are the pods that are approved so far.
	FinishedNames []string
}

// Failure says why there is no answer.
type Failure struct {
	Class   string
	Message string

	// RetryAfter is when the service wants to be asked again; 0 when it does not say.
	RetryAfter time.Duration
}

// Posted takes in the answer to a POST. Without poll or async it is the last word: on success all
// pods are approved, otherwise those in FinishedNames. unknown are names that were not asked
// about, sorted; they approve nothing. An answer to a task that does not wait for it changes
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

// accepted takes in that the service will answer later.
func (t Tasks) accepted(task appsv1alpha1.TaskInfo, i int, answer PostAnswer, rule Rule, now time.Time) (next Tasks, unknown []string) {
	id := answer.TaskID
	if id == "" {
		id = answer.TraceID
	}
	refusal := ""
	switch {
	case !rule.Polls:
		refusal = "the service answered that it wants to be polled, but the rule has no webhook.clientConfig.poll"
	case id == "":
		refusal = "the service answered that it wants to be polled, but not with which taskId"
	case len(id) > maxTaskIDBytes:
		refusal = fmt.Sprintf("the service answered with a taskId of %d bytes, the limit is %d", len(id), maxTaskIDBytes)
	}
	if refusal != "" {
		return t.replaced(i, failed(task, Failure{Class: ClassBadResponse, Message: refusal}, now)), nil
	}
	task, unknown = approved(task, answer.FinishedNames)
	task.Phase, task.TaskID, task.QueryKey, task.Answered = appsv1alpha1.TaskPolling, id, queryKey(rule, answer), true
	if len(task.Processing) == 0 {
		return t.replaced(i, finished(task, "", answer.Message, now)), unknown
	}
	task.Message, task.LastTime = shortened(answer.Message), second(now)
	return t.replaced(i, task), unknown
}

// PostFailed takes in that a POST came to nothing, be it that it was never sent: its id is used up
// all the same.
func (t Tasks) PostFailed(traceID string, failure Failure, rule Rule, now time.Time) Tasks {
	task, i, found := t.find(traceID, appsv1alpha1.TaskPosting, rule)
	if !found {
		return t
	}
	return t.replaced(i, failed(task, failure, now))
}

// Polled takes in the answer to a poll. Pods in FinishedNames are approved as they come; once it
// is finished, all are. Both count with success only (known failures, G15). unknown is as with
// Posted.
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
		return t.said(i, "", answer.Message, now), unknown
	}
	return t.replaced(i, task), unknown
}

// PollFailed takes in that a poll came to nothing. The task goes on: the service may work on it
// all the same, and its timeout bounds how long that is believed.
func (t Tasks) PollFailed(traceID string, failure Failure, rule Rule, now time.Time) Tasks {
	_, i, found := t.find(traceID, appsv1alpha1.TaskPolling, rule)
	if !found {
		return t
	}
	return t.said(i, failure.Class, failure.Message, now)
}

// messageEvery bounds how often a mere message is written down: a service that counts the seconds
// in it would otherwise cause a write with each poll.
const messageEvery = 30 * time.Second

// said shows what was last heard of a task that goes on.
func (t Tasks) said(index int, reason, message string, now time.Time) Tasks {
	task := *t.states[index].DeepCopy()
	reason, message = text.Line(reason, maxReasonBytes), shortened(message)
	same := task.Reason == reason && task.Message == message
	if same || now.Sub(task.LastTime.Time) < messageEvery {
		return t
	}
	task.Reason, task.Message, task.LastTime = reason, message, second(now)
	return t.replaced(index, task)
}

// approved moves the pods with those names to the approved ones. unknown are names of no pod of
// the task, sorted.
func approved(task appsv1alpha1.TaskInfo, names []string) (next appsv1alpha1.TaskInfo, unknown []string) {
	named := map[string]bool{}
	for _, name := range names {
		named[name] = true
	}
	asked := map[string]bool{}
	for _, pod := range slices.Concat(task.Processing, task.Approved) {
		asked[pod.Name] = true
	}
	for name := range named {
		if !asked[name] {
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

// finished: the service has said its last word. Why it did not approve the rest is reason.
func finished(task appsv1alpha1.TaskInfo, reason, message string, now time.Time) appsv1alpha1.TaskInfo {
	task.Answered = true
	return ended(task, appsv1alpha1.TaskFinished, Failure{Class: reason, Message: message}, now)
}

// rejected: the service answered a POST with its last word. That is no failure, and may be another
// one soon, so the service is asked again about the rest at a steady interval.
func rejected(task appsv1alpha1.TaskInfo, message string, rule Rule, now time.Time) appsv1alpha1.TaskInfo {
	task = finished(task, ClassRejected, message, now)
	if len(task.Processing) > 0 {
		next := roundedUp(now.Add(spread(rule.AskAgain, task.TraceID)))
		task.NextTime, task.Attempts = &next, 0
	}
	return task
}

// failed: the service could not be asked, or did not end in time.
func failed(task appsv1alpha1.TaskInfo, failure Failure, now time.Time) appsv1alpha1.TaskInfo {
	return ended(task, appsv1alpha1.TaskFailed, failure, now)
}

func ended(task appsv1alpha1.TaskInfo, phase appsv1alpha1.TaskPhase, why Failure, now time.Time) appsv1alpha1.TaskInfo {
	task.Phase, task.Message, task.LastTime = phase, shortened(why.Message), second(now)
	if len(task.Processing) == 0 {
		return settled(task)
	}
	if len(task.Approved) > 0 {
		// The service is at work; what it said no to before counts no more.
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

// settled has nothing to say of failures: no pod of the task waits for another call.
func settled(task appsv1alpha1.TaskInfo) appsv1alpha1.TaskInfo {
	task.Phase, task.Reason, task.NextTime, task.Attempts, task.Answered = appsv1alpha1.TaskFinished, "", nil, 0, false
	return task
}

// queryKey is how the id of a task is to be sent.
func queryKey(rule Rule, answer PostAnswer) string {
	switch {
	case rule.QueryKey != "":
		return rule.QueryKey
	case answer.Async:
		return keyBoth
	}
	return keyTaskID
}
