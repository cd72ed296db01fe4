package webhooktask

import (
	"slices"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Keys of polls that carry the id of a task. After an answer with poll the key is task-id, after one
// with async it is trace-id; services of the async form that read task-id are deployed, too, so both
// keys are sent to them, each with the id that the service gave.
const (
	keyTaskID  = "task-id"
	keyTraceID = "trace-id"
	keyBoth    = keyTaskID + "," + keyTraceID
)

// maxPollBackoff bounds the time between two polls that fail, unless the interval is longer.
const maxPollBackoff = time.Minute

// Poll is a call that may be made at once. No status is written before.
type Poll struct {
	TraceID string
	TaskID  string

	// Keys are the query parameters that carry the id.
	Keys []string
}

// LastPoll is what the process remembers of the polls of a task. It is lost with the process; the
// zero value polls at once.
type LastPoll struct {
	// At is when the last one ended.
	At time.Time

	// Running: one is under way. There is never a second one.
	Running bool

	// Failures in a row, up to the last poll.
	Failures int

	// RetryAfter is what the service asked for with the last failure.
	RetryAfter time.Duration
}

// Due returns the polls to make now, oldest task first.
func (t Tasks) Due(rule Rule, last func(traceID string) LastPoll, now time.Time) []Poll {
	var polls []Poll
	for _, task := range t.states {
		if isPolled(task, rule) && !last(task.TraceID).Running && !pollTime(last(task.TraceID), rule).After(now) {
			polls = append(polls, Poll{TraceID: task.TraceID, TaskID: task.TaskID, Keys: keys(task.QueryKey)})
		}
	}
	return polls
}

// Next returns how long it is until something is due: a poll, the end of a timeout, or the time to
// ask again about pods that failed. A poll that is due already and not under way counts with the
// least duration above 0, so that it is not forgotten where it could not begin. 0 means that only a
// result, or a change of the cluster, leads on.
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

// pollTime is when a task may be polled again. A failed poll doubles the time until the next one.
func pollTime(before LastPoll, rule Rule) time.Time {
	if before.At.IsZero() {
		return time.Time{}
	}
	pause := doubled(rule.Interval, before.Failures, max(rule.Interval, maxPollBackoff))
	return before.At.Add(max(pause, min(before.RetryAfter, maxDelay)))
}

// keys undoes queryKey.
func keys(queryKey string) []string {
	switch queryKey {
	case keyBoth:
		return []string{keyTaskID, keyTraceID}
	case "":
		return []string{keyTaskID}
	}
	return []string{queryKey}
}
