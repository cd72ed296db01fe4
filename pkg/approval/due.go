package approval

import (
	"slices"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Keys of polls that carry the id of a task.
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

// Due are the polls to make now, oldest task first, and how long it is until something is due that
// is not due yet: a poll, the end of a timeout, or the time to ask again about pods that failed. 0
// means that only a result, or a change of the cluster, leads on.
func (t Tasks) Due(rule Rule, last func(traceID string) LastPoll, now time.Time) (polls []Poll, next time.Duration) {
	times := []time.Time{}
	for _, task := range t.states {
		if task.NextTime != nil { // it has ended
			times = append(times, task.NextTime.Time)
		}
		if task.Phase != appsv1alpha1.TaskPolling || task.RuleGeneration != rule.Generation {
			continue
		}
		times = append(times, deadline(task, rule))
		before := last(task.TraceID)
		if before.Running {
			continue
		}
		at := pollTime(before, rule)
		if at.After(now) {
			times = append(times, at)
			continue
		}
		polls = append(polls, Poll{TraceID: task.TraceID, TaskID: task.TaskID, Keys: keys(task.QueryKey)})
	}
	times = slices.DeleteFunc(times, func(at time.Time) bool { return !at.After(now) })
	if len(times) > 0 {
		next = slices.MinFunc(times, time.Time.Compare).Sub(now)
	}
	return polls, next
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
