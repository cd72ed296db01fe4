package approvals

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// maxTasks is the number of tasks that are kept. A poll of an older task gets 404.
const maxTasks = 1000

// plan returns the result of a poll: the approved pods, and whether the task stops and
// rejects the others. The task has counted the poll. Pods that were approved before may be
// included.
type plan func(*task) (free []Pod, stop bool)

// plans returns the paths that create a task.
func plans() map[string]plan {
	return map[string]plan{
		"/poll":      someEach,
		"/poll-slow": func(t *task) ([]Pod, bool) { return allAfter(t, 5) },
		"/async":     someEach,
		"/stop":      func(t *task) ([]Pod, bool) { return nil, t.polls >= max(t.settings.polls, 1) },
		"/never":     func(*task) ([]Pod, bool) { return nil, false },
		manualPath:   decided,
	}
}

func someEach(t *task) ([]Pod, bool) {
	return t.post.Pods[:min(t.polls*t.settings.each, len(t.post.Pods))], false
}

func allAfter(t *task, polls int) ([]Pod, bool) {
	if t.settings.polls > 0 {
		polls = t.settings.polls
	}
	if t.polls < polls {
		return nil, false
	}
	return t.post.Pods, false
}

// task is created by a POST. Its pods are identified by name: in a request each name occurs
// once.
type task struct {
	id       string
	post     Entry
	plan     plan
	settings settings

	polls    int
	lastCall time.Time // time of the last poll, or of the POST
	approved map[string]bool
	refused  map[string]bool // by a decision
	stopped  bool
}

// begin creates a task. A repeated POST returns the task that it created before. It is
// called with mu held.
func (s *Service) begin(entry Entry, set settings) reply {
	for _, t := range s.tasks {
		if t.post.TraceID == entry.TraceID && t.post.Path == entry.Path {
			return t.accepted()
		}
	}
	t := &task{
		id: set.prefix + rand.Text(), post: entry, plan: plans()[entry.Path], settings: set, lastCall: entry.Time,
		approved: map[string]bool{}, refused: map[string]bool{},
	}
	s.tasks = append(s.tasks, t)
	s.weight += entry.weight()
	for len(s.tasks) > maxTasks || s.weight > maxWeight {
		s.weight -= s.tasks[0].post.weight()
		s.tasks = slices.Delete(s.tasks, 0, 1)
	}
	return t.accepted()
}

func (t *task) accepted() reply {
	message := t.settings.messageOr("waits for a decision on " + count(t.post.Pods))
	answer := postAnswer{Success: true, Message: message, TaskID: t.id, Poll: true}
	if t.post.Path == "/async" {
		answer.Poll, answer.Async, answer.TraceID = false, true, t.post.TraceID
	}
	return reply{decision: Accepted, taskID: t.id, message: message, status: http.StatusOK, body: answer}
}

// find returns the task that a query names: by its id or by the traceId of its POST, under
// any key. A query that names two tasks is an error.
func (s *Service) find(query url.Values) (*task, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found *task
	for _, values := range query {
		for _, t := range s.tasks {
			if !slices.Contains(values, t.id) && !slices.Contains(values, t.post.TraceID) {
				continue
			}
			if found != nil && found != t {
				return nil, errors.New("the query names two tasks")
			}
			found = t
		}
	}
	if found == nil {
		return nil, errors.New("the query names no task that is known")
	}
	return found, nil
}

// onto copies the fields of the task to an entry.
func (t *task) onto(e Entry) Entry {
	e.TraceID, e.TaskID = t.post.TraceID, t.id
	e.Namespace, e.Rule, e.Stage, e.OperationTypes, e.Pods = t.post.Namespace, t.post.Rule, t.post.Stage, t.post.OperationTypes, t.post.Pods
	return e
}

// poll advances the task. It is called with mu held.
func (t *task) poll() reply {
	t.lastCall = time.Now()
	var freed []Pod
	if !t.ended() {
		t.polls++
		free, stop := t.plan(t)
		for _, pod := range free {
			if !t.approved[pod.Name] {
				t.approved[pod.Name] = true
				freed = append(freed, pod)
			}
		}
		t.stopped = stop && !t.finished()
	}
	r := reply{decision: Processing, approved: freed, status: http.StatusOK, message: t.progress()}
	switch {
	case t.finished():
		r.decision = Approved
	case t.stopped:
		r.decision, r.message = Stopped, t.settings.messageOr("gave up")
	}
	free := slices.DeleteFunc(slices.Clone(t.post.Pods), func(pod Pod) bool { return !t.approved[pod.Name] })
	r.body = pollAnswer{Success: true, Finished: t.finished(), FinishedNames: names(free), Message: r.message, Stop: t.stopped}
	return r
}

func (t *task) finished() bool { return len(t.approved) == len(t.post.Pods) }

func (t *task) ended() bool { return t.finished() || t.stopped }

func (t *task) progress() string {
	return t.settings.messageOr(fmt.Sprintf("%d of %s approved", len(t.approved), count(t.post.Pods)))
}

func count(pods []Pod) string {
	if len(pods) == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", len(pods))
}
