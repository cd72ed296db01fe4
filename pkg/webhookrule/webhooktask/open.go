package webhooktask

import (
	"cmp"
	"slices"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// Post is a call to make after status is written.
type Post struct {
	TraceID string

	// Requests are the requests of the call, oldest first. A pod that waits with two ids is in it
	// twice.
	Requests []rule.Request
}

// batch has the requests of one call.
type batch struct {
	requests []rule.Request

	// attempts counts the failed calls. It is 0 for pods without an earlier call.
	attempts int32
	retry    bool

	// answered is the field of the task that the pods come from.
	answered bool
}

// Open starts calls for requests that need a call. Requests that are approved, in an open task, or
// not yet due are left out. Pods that failed together are in one call again, because they share a
// delay. Above the limits requests stay without a task and can be passed again. newTraceID returns
// a new id, of at most 64 bytes.
func (t Tasks) Open(requests []rule.Request, rule Rule, now time.Time, newTraceID func() string) (next Tasks, posts []Post) {
	next = t
	for _, b := range t.batches(requests, rule, now) {
		free, fits := next.withSpaceFor(b, rule, now)
		if !fits {
			continue
		}
		task := appsv1alpha1.TaskInfo{
			TraceID:        newTraceID(),
			Phase:          appsv1alpha1.TaskPosting,
			RuleGeneration: rule.Generation,
			BeginTime:      second(now),
			LastTime:       second(now),
			Attempts:       b.attempts,
			Answered:       b.answered,
		}
		for _, request := range b.requests {
			task.Processing = append(task.Processing, newTaskPod(request))
		}
		next = newTasks(append(slices.Clip(free.states), task), free.history)
		posts = append(posts, Post{TraceID: task.TraceID, Requests: b.requests})
	}
	return next, posts
}

// batches returns the calls to make, sorted by their oldest request.
func (t Tasks) batches(requests []rule.Request, ruleset Rule, now time.Time) []batch {
	sorted := slices.SortedFunc(slices.Values(requests), func(a, b rule.Request) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Key(), b.Key()))
	})
	batches := []batch{}
	seen := map[appsv1alpha1.TaskPod]bool{}
	retries := map[int]int{} // from the failed task to the batch with its pods
	fresh := -1              // the batch for pods without an earlier call
	for _, request := range sorted {
		if seen[newTaskPod(request)] {
			continue
		}
		seen[newTaskPod(request)] = true
		switch task := t.Of(request, ruleset, now); {
		case task.State == "":
			if fresh < 0 || !batches[fresh].takes(request) {
				fresh = len(batches)
				batches = append(batches, batch{})
			}
			batches[fresh].requests = append(batches[fresh].requests, request)
		case task.State == rule.TaskFailed && task.RetryDue:
			from := t.places[place{newTaskPod(request), ruleset.Generation}]
			into, begun := retries[from]
			if !begun {
				into = len(batches)
				retries[from] = into
				batches = append(batches, batch{attempts: t.states[from].Attempts, retry: true, answered: isAnswered(t.states[from])})
			}
			batches[into].requests = append(batches[into].requests, request)
		}
	}
	return batches
}

// takes reports whether a request fits. Two pods with the same name (one of them is deleted, and
// still in the cache) are never in one call: the answer could not distinguish them.
func (b batch) takes(request rule.Request) bool {
	namesake := slices.ContainsFunc(b.requests, func(other rule.Request) bool {
		return other.Pod.Name == request.Pod.Name && other.Pod.UID != request.Pod.UID
	})
	return !namesake && len(b.requests) < appsv1alpha1.MaxStatusTaskPods
}

// withSpaceFor returns t with the batch's pods removed from the failed task that they belong to, and
// whether a new task fits.
func (t Tasks) withSpaceFor(b batch, rule Rule, now time.Time) (next Tasks, fits bool) {
	if open, _ := t.Running(); open >= rule.openStates() {
		return t, false
	}
	limit := rule.freshStates()
	if b.retry {
		limit = rule.States
	}
	next = t.without(b, now)
	if len(next.states) >= limit {
		next = next.merged(now)
	}
	return next, len(next.states) < limit
}

// without returns t with the pods of a batch removed from their failed task.
func (t Tasks) without(b batch, now time.Time) Tasks {
	if !b.retry {
		return t
	}
	leaves := map[appsv1alpha1.TaskPod]bool{}
	for _, request := range b.requests {
		leaves[newTaskPod(request)] = true
	}
	stays := func(pod appsv1alpha1.TaskPod) bool { return !leaves[pod] }
	next := Tasks{history: t.history}
	for _, task := range t.states {
		rest := task
		rest.Processing = filtered(task.Processing, stays)
		switch {
		case len(rest.Processing) == len(task.Processing):
			next.states = append(next.states, task)
			continue
		case len(rest.Processing)+len(rest.Approved) == 0:
			next.history = withHistory(next.history, task, now)
			continue
		case len(rest.Processing) == 0:
			rest = withoutFailure(rest)
		}
		rest.LastTime = second(now)
		next.states = append(next.states, rest)
	}
	return newTasks(next.states, next.history)
}

// merged merges ended tasks when the limit is reached: pods that came one by one would otherwise
// take a task each for as long as they wait. The merged task has the failure of the newer task;
// pods that are due for another call wait for the later of both times.
func (t Tasks) merged(now time.Time) Tasks {
	states := []appsv1alpha1.TaskInfo{}
	for _, task := range t.states {
		into := slices.IndexFunc(states, func(older appsv1alpha1.TaskInfo) bool { return mergeable(older, task) })
		if into < 0 {
			states = append(states, task)
			continue
		}
		older, both := states[into], task
		if len(task.Processing) == 0 && len(older.Processing) > 0 {
			both = older
		}
		both.Processing = slices.Concat(older.Processing, task.Processing)
		both.Approved = slices.Concat(older.Approved, task.Approved)
		both.Attempts, both.LastTime = max(older.Attempts, task.Attempts), second(now)
		both.Answered = len(both.Processing) > 0 && (isAnswered(older) || isAnswered(task))
		if older.NextTime != nil && both.NextTime.Before(older.NextTime) {
			both.NextTime = older.NextTime
		}
		states[into] = both
	}
	return newTasks(states, t.history)
}

// mergeable reports whether two tasks
//
//   - have ended,
//   - under the same generation of the rule,
//   - with pods of which the service has answered for either all or none,
//   - and have at most the maximum of pods together, no two of which have the same name and wait for a call.
func mergeable(a, b appsv1alpha1.TaskInfo) bool {
	return !isOpen(a) && !isOpen(b) &&
		a.RuleGeneration == b.RuleGeneration &&
		(len(a.Processing) == 0 || len(b.Processing) == 0 || isAnswered(a) == isAnswered(b)) &&
		len(a.Processing)+len(b.Processing) <= appsv1alpha1.MaxStatusTaskPods &&
		len(a.Approved)+len(b.Approved) <= appsv1alpha1.MaxStatusTaskPods &&
		!haveNamesakes(a.Processing, b.Processing)
}

func haveNamesakes(a, b []appsv1alpha1.TaskPod) bool {
	for _, pod := range a {
		namesake := func(other appsv1alpha1.TaskPod) bool { return other.Name == pod.Name && other.UID != pod.UID }
		if slices.ContainsFunc(b, namesake) {
			return true
		}
	}
	return false
}
