package webhooktask

import (
	"slices"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/runtime/backoff"
)

// Query parameters of polls that carry the id of a task. After an answer with poll the key is
// task-id, after an answer with async it is trace-id; some deployed services of the async
// form read task-id, so they get both keys, each with the same id.
const (
	keyTaskID  = "task-id"
	keyTraceID = "trace-id"
	keyBoth    = keyTaskID + "," + keyTraceID
)

// maxPollBackoff bounds the time between two failed polls, unless the interval is longer.
const maxPollBackoff = time.Minute

// Poll is a call that may be made at once, without a write of status.
type Poll struct {
	TraceID string
	TaskID  string

	// Keys are the query parameters that carry the id.
	Keys []string

	// Pods are the pods that the task has not approved. The slice must not be modified.
	Pods []appsv1alpha1.TaskPod
}

// LastPoll is the state of a task's polls in this process. It is lost with the process; the
// zero value polls at once.
type LastPoll struct {
	// At is when the last poll ended.
	At time.Time

	// Running is set while a poll is in flight. A task has at most one poll in flight.
	Running bool

	// Failures counts the consecutive failures up to the last poll.
	Failures int

	// RetryAfter is the delay that the service required with the last failure.
	RetryAfter time.Duration
}

// Due returns the polls to make now, oldest task first.
func (t Tasks) Due(rule Rule, last func(traceID string) LastPoll, now time.Time) []Poll {
	var polls []Poll
	for _, task := range t.states {
		if isPolled(task, rule) && !last(task.TraceID).Running && !pollTime(last(task.TraceID), rule).After(now) {
			polls = append(polls, Poll{TraceID: task.TraceID, TaskID: task.TaskID, Keys: keys(task.QueryKey), Pods: task.Processing})
		}
	}
	return polls
}

// Next returns the time until the next poll, timeout, or call for pods that failed. A poll that is
// due and not in flight counts with the least duration above 0, so that it is not lost if it could
// not start. 0 means that only a result, or a change of the cluster, leads on.
func (t Tasks) Next(rule Rule, last func(traceID string) LastPoll, now time.Time) time.Duration {
	times := []time.Time{}
	for _, task := range t.states {
		if task.NextTime != nil && task.NextTime.After(now) { // it has ended
			times = append(times, retryTime(task, now))
		}
		if !isPolled(task, rule) {
			continue
		}
		times = append(times, deadline(task, rule))
		if before := last(task.TraceID); !before.Running {
			times = append(times, pollTime(before, rule))
		}
	}
	if len(times) == 0 {
		return 0
	}
	return max(1, slices.MinFunc(times, time.Time.Compare).Sub(now))
}

func isPolled(task appsv1alpha1.TaskInfo, rule Rule) bool {
	return task.Phase == appsv1alpha1.TaskPolling && task.RuleGeneration == rule.Generation
}

// pollTime returns when a task may be polled again. Each failed poll doubles the delay of the next
// poll.
func pollTime(before LastPoll, rule Rule) time.Time {
	if before.At.IsZero() {
		return time.Time{}
	}
	pause := backoff.Delay(rule.Interval, before.Failures, max(rule.Interval, maxPollBackoff))
	return before.At.Add(max(pause, min(before.RetryAfter, maxDelay)))
}

// keys is the inverse of queryKey.
func keys(queryKey string) []string {
	switch queryKey {
	case keyBoth:
		return []string{keyTaskID, keyTraceID}
	case "":
		return []string{keyTaskID}
	}
	return []string{queryKey}
}
