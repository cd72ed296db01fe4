package webhooktask

import (
	"cmp"
	"slices"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/rule"
)

// Post is a call that is to be made once status is written.
type Post struct {
	TraceID string

	// Requests that the service is asked about, oldest first. A pod that waits with two ids is
	// in it twice.
	Requests []rule.Request
}

// batch is what one call will be about.
type batch struct {
	requests []rule.Request

	// attempts that failed. A batch without any is one of pods that were never asked about.
	attempts int32
	retry    bool

	// answered is that of the task that the pods come from.
	answered bool
}

// Open begins calls about requests that need one. Those that are approved, in an open task, or not
// to be asked about yet are left out. Pods that failed together are asked about together again, or
// the delay of some would be lost on the others. Where there is no room, requests stay without a
// task and can be handed in again. newTraceID returns another id, of at most 64 bytes, each time.
func (t Tasks) Open(requests []rule.Request, rule Rule, now time.Time, newTraceID func() string) (next Tasks, posts []Post) {
	next = t
	for _, b := range t.batches(requests, rule, now) {
		with, fits := next.with(b, rule, now)
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
			task.Processing = append(task.Processing, podOf(request))
		}
		next = newTasks(append(slices.Clip(with.states), task), with.history)
		posts = append(posts, Post{TraceID: task.TraceID, Requests: b.requests})
	}
	return next, posts
}

// batches of requests, those with the oldest request first.
func (t Tasks) batches(requests []rule.Request, ruleset Rule, now time.Time) []batch {
	sorted := slices.SortedFunc(slices.Values(requests), func(a, b rule.Request) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Key(), b.Key()))
	})
	batches := []batch{}
	seen := map[appsv1alpha1.TaskPod]bool{}
	retries := map[int]int{} // by the task that failed: the batch that its pods are in
	fresh := -1              // the batch that takes pods which were never asked about
	for _, request := range sorted {
		if seen[podOf(request)] {
			continue
		}
		seen[podOf(request)] = true
		switch task := t.Of(request, ruleset, now); {
		case task.State == "":
			if fresh < 0 || !batches[fresh].takes(request) {
				fresh = len(batches)
				batches = append(batches, batch{})
			}
			batches[fresh].requests = append(batches[fresh].requests, request)
		case task.State == rule.TaskFailed && task.RetryDue:
			from := t.places[place{podOf(request), ruleset.Generation}]
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

// takes says whether a request fits. Two pods of one name, of which one must be about to vanish
// from the cache, never are in one call: the answer could not tell them apart.
func (b batch) takes(request rule.Request) bool {
	namesake := slices.ContainsFunc(b.requests, func(other rule.Request) bool {
		return other.Pod.Name == request.Pod.Name && other.Pod.UID != request.Pod.UID
	})
	return !namesake && len(b.requests) < appsv1alpha1.MaxStatusTaskPods
}

// with has room for a batch, and its pods in no other task.
func (t Tasks) with(b batch, rule Rule, now time.Time) (next Tasks, fits bool) {
	if open, _ := t.Running(); open >= rule.openStates() {
		return t, false
	}
	limit := rule.freshStates()
	if b.retry {
		limit = rule.States
	}
	next = t.without(b, now)
	if len(next.states) >= limit {
		next = next.joined(now)
	}
	return next, len(next.states) < limit
}

// without the pods of a batch, which leave the task that failed.
func (t Tasks) without(b batch, now time.Time) Tasks {
	if !b.retry {
		return t
	}
	leaves := map[appsv1alpha1.TaskPod]bool{}
	for _, request := range b.requests {
		leaves[podOf(request)] = true
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
			next.history = remembered(next.history, task, now)
			continue
		case len(rest.Processing) == 0:
			rest = settled(rest)
		}
		rest.LastTime = second(now)
		next.states = append(next.states, rest)
	}
	return newTasks(next.states, next.history)
}

// joined puts ended tasks together where they fit, when room is short: pods that came one by one
// would otherwise take a task each for as long as they wait. What is shown is that of the newer
// one, if it failed for anybody; pods that are to be asked about again wait for the later of both
// times.
func (t Tasks) joined(now time.Time) Tasks {
	states := []appsv1alpha1.TaskInfo{}
	for _, task := range t.states {
		into := slices.IndexFunc(states, func(older appsv1alpha1.TaskInfo) bool { return joins(older, task) })
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

// joins says whether two tasks
//   - have ended,
//   - under the same generation of the rule,
//   - with pods of which the service has answered about all or none,
//   - and have room for the pods of both, no two of which have one name and are to be asked about.
func joins(a, b appsv1alpha1.TaskInfo) bool {
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
