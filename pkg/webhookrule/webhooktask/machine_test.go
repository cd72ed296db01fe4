package webhooktask_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
)

// machine is a manager, its API server, a cluster with pods, and a service. Each of them acts at
// any time: the manager ends between two instructions, results are lost or duplicated, the rule is
// edited, pods are deleted and replaced by others with the same names.
type machine struct {
	now     time.Time
	rule    webhooktask.Rule
	stored  []byte // status, as the API server stores it
	pods    map[string]rule.Request
	lastUID int
	lastID  int

	process process
	service service

	// answered are the pods with an answer of the service in status, other than an approval, by the
	// generation of the rule.
	answered map[answeredTo]bool
}

type answeredTo struct {
	pod        appsv1alpha1.TaskPod
	generation int64
}

// process is the state of a manager that is lost when it ends.
type process struct {
	calls   map[string]call // in flight, by key
	results []result        // received, until status has them
	answers []answeredTo    // of the recorded results, until status has them
	polls   map[string]webhooktask.LastPoll
}

type call struct {
	traceID    string
	poll       bool
	requests   []rule.Request // of a POST
	generation int64          // of the rule, when the POST was opened
}

type result struct {
	call    call
	post    webhooktask.PostAnswer
	poll    webhooktask.PollAnswer
	failure *webhooktask.Failure
}

// service records the pods of each call and its answers.
type service struct {
	called   map[string][]appsv1alpha1.TaskPod
	rules    map[string]int64 // the generation of the rule of a call
	approved map[approvalOf]bool
}

type approvalOf struct {
	traceID string
	pod     appsv1alpha1.TaskPod
}

func newMachine(t *rapid.T) *machine {
	m := &machine{
		now:  start,
		pods: map[string]rule.Request{}, answered: map[answeredTo]bool{},
		service: service{
			called: map[string][]appsv1alpha1.TaskPod{}, rules: map[string]int64{}, approved: map[approvalOf]bool{},
		},
	}
	m.rule = polled()
	m.rule.States = rapid.SampledFrom([]int{2, 4, 32}).Draw(t, "states")
	m.restart()
	return m
}

func (m *machine) restart() {
	m.process = process{calls: map[string]call{}, polls: map[string]webhooktask.LastPoll{}}
}

// waiting returns the waiting requests in a fixed order for rapid; the code under test must not
// depend on it.
func (m *machine) waiting() []rule.Request {
	requests := []rule.Request{}
	for _, key := range slices.Sorted(maps.Keys(m.pods)) {
		requests = append(requests, m.pods[key])
	}
	return requests
}

// read returns the status that the manager reads.
func (m *machine) read() *appsv1alpha1.WebhookStatus {
	if m.stored == nil {
		return nil
	}
	status := &appsv1alpha1.WebhookStatus{}
	if err := json.Unmarshal(m.stored, status); err != nil {
		panic(err)
	}
	return status
}

// round is one round of the manager. It may end before or after the write, and the write may fail.
func (m *machine) round(t *rapid.T) {
	m.process.answers = nil
	tasks := webhooktask.FromStatus(m.read())
	step := func(name string, do func(webhooktask.Tasks) webhooktask.Tasks) {
		tasks = unchanged(t, name, tasks, m, do)
	}
	for _, r := range m.process.results {
		step("result", func(tasks webhooktask.Tasks) webhooktask.Tasks { return m.take(tasks, r) })
	}
	step("Interrupted", func(tasks webhooktask.Tasks) webhooktask.Tasks { return tasks.Interrupted(m.knows, m.now) })
	step("Expire", func(tasks webhooktask.Tasks) webhooktask.Tasks { return tasks.Expire(m.rule, m.now) })
	waiting := m.waiting()
	step("Forget", func(tasks webhooktask.Tasks) webhooktask.Tasks { return tasks.Forget(waiting, m.rule, m.now) })
	m.checkBounds(t, tasks)
	needCall := []rule.Request{}
	for _, request := range waiting {
		// Cheaper rules withhold some requests.
		if rapid.IntRange(0, 3).Draw(t, "withheld") > 0 {
			needCall = append(needCall, request)
		}
	}
	var posts []webhooktask.Post
	step("Open", func(tasks webhooktask.Tasks) webhooktask.Tasks {
		next, opened := tasks.Open(needCall, m.rule, m.now, m.newID)
		posts = opened
		for _, post := range opened {
			m.checkPost(t, tasks, post)
		}
		return next
	})
	polls := tasks.Due(m.rule, func(id string) webhooktask.LastPoll { return m.process.polls[id] }, m.now)
	m.checkBounds(t, tasks)

	switch rapid.SampledFrom([]string{"goes on", "goes on", "goes on", "conflict", "dies before", "dies after"}).Draw(t, "write") {
	case "conflict":
	case "dies before":
		m.restart()
	case "dies after":
		m.write(tasks)
		m.restart()
	case "goes on":
		m.write(tasks)
		m.process.results = nil
		for _, post := range posts {
			m.process.calls[post.TraceID] = call{traceID: post.TraceID, requests: post.Requests, generation: m.rule.Generation}
		}
		for _, poll := range polls {
			m.process.calls["poll "+poll.TraceID] = call{traceID: poll.TraceID, poll: true}
			m.process.polls[poll.TraceID] = webhooktask.LastPoll{Running: true}
		}
	}
}

func (m *machine) write(tasks webhooktask.Tasks) {
	m.stored = nil
	if status := tasks.Status(m.now); status != nil {
		written, err := json.Marshal(status)
		if err != nil {
			panic(err)
		}
		m.stored = written
	}
	for _, answer := range m.process.answers {
		m.answered[answer] = true
	}
	m.process.answers = nil
}

// hear records the answer to a POST that status waits for.
func (m *machine) hear(before webhooktask.Tasks, r result) {
	status := before.Status(m.now)
	if status == nil || r.failure != nil || r.call.poll || r.post.Success && !r.post.Poll || r.post.Poll && r.post.Success && !m.rule.Polls {
		return
	}
	for _, task := range status.TaskStates {
		if task.TraceID != r.call.traceID || task.Phase != appsv1alpha1.TaskPosting || task.RuleGeneration != m.rule.Generation {
			continue
		}
		for _, pod := range task.Processing {
			m.process.answers = append(m.process.answers, answeredTo{pod, m.rule.Generation})
		}
	}
}

func (m *machine) newID() string {
	m.lastID++
	return fmt.Sprintf("t%d", m.lastID)
}

func (m *machine) knows(traceID string) bool {
	_, underWay := m.process.calls[traceID]
	return underWay || slices.ContainsFunc(m.process.results, func(r result) bool { return r.call.traceID == traceID })
}

func (m *machine) take(tasks webhooktask.Tasks, r result) webhooktask.Tasks {
	id := r.call.traceID
	m.hear(tasks, r)
	switch {
	case r.call.poll && r.failure != nil:
		return tasks.PollFailed(id, *r.failure, m.rule, m.now)
	case r.call.poll:
		tasks, _ = tasks.Polled(id, r.poll, m.rule, m.now)
	case r.failure != nil:
		return tasks.PostFailed(id, *r.failure, m.rule, m.now)
	default:
		tasks, _ = tasks.Posted(id, r.post, m.rule, m.now)
	}
	return tasks
}

// serve delivers a call to the service, or not, and its result to the manager, or not.
func (m *machine) serve(t *rapid.T) {
	if len(m.process.calls) == 0 {
		return
	}
	key := rapid.SampledFrom(slices.Sorted(maps.Keys(m.process.calls))).Draw(t, "call")
	c := m.process.calls[key]
	r := result{call: c}
	way := rapid.SampledFrom([]string{"there and back", "there and back", "there", "nowhere"}).Draw(t, "way")
	if way != "nowhere" {
		r.post, r.poll = m.service.answer(t, c)
	}
	if way != "there and back" {
		r.failure = &webhooktask.Failure{Class: "Timeout", RetryAfter: time.Duration(rapid.IntRange(0, 60).Draw(t, "retry after")) * time.Second}
	}
	delete(m.process.calls, key)
	for range rapid.IntRange(1, 2).Draw(t, "times") {
		m.process.results = append(m.process.results, r)
	}
	if c.poll {
		last := webhooktask.LastPoll{At: m.now}
		if r.failure != nil {
			last.Failures, last.RetryAfter = 1, r.failure.RetryAfter
		}
		m.process.polls[c.traceID] = last
	}
}

// answer draws an answer of the service, which remembers pods by UID.
func (s *service) answer(t *rapid.T, c call) (webhooktask.PostAnswer, webhooktask.PollAnswer) {
	if !c.poll {
		if _, seen := s.called[c.traceID]; seen {
			t.Fatalf("%s is posted again", c.traceID)
		}
		s.rules[c.traceID] = c.generation
		for _, request := range c.requests {
			s.called[c.traceID] = append(s.called[c.traceID], appsv1alpha1.TaskPod{
				UID: request.Pod.UID, Name: request.Pod.Name, ID: request.ID, Generation: request.Attempt,
			})
		}
	}
	success := rapid.Bool().Draw(t, "success")
	named := rapid.SliceOf(rapid.SampledFrom([]string{"a", "b", "c", "d", "stranger"})).Draw(t, "names")
	post := webhooktask.PostAnswer{Success: success, FinishedNames: named}
	poll := webhooktask.PollAnswer{Success: success, FinishedNames: named}
	if c.poll {
		poll.Finished, poll.Stop = rapid.Bool().Draw(t, "finished"), rapid.IntRange(0, 3).Draw(t, "stop") == 0
	} else if rapid.Bool().Draw(t, "poll") {
		post.Poll, post.TaskID = true, "task of "+c.traceID
	}
	all := success && (c.poll && poll.Finished || !c.poll && !post.Poll)
	for _, pod := range s.called[c.traceID] {
		if all || slices.Contains(named, pod.Name) && (success || !c.poll) {
			s.approved[approvalOf{c.traceID, pod}] = true
		}
	}
	return post, poll
}

func (m *machine) edit(t *rapid.T) {
	m.rule.Generation++
	m.rule.Polls = rapid.IntRange(0, 3).Draw(t, "polls") > 0
}

// stir creates and deletes pods, and starts other operations on them.
func (m *machine) stir(t *rapid.T) {
	name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "pod")
	id := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "id")
	request, waits := m.pods[name+"/"+id]
	if waits && rapid.Bool().Draw(t, "goes") {
		delete(m.pods, name+"/"+id)
		return
	}
	m.lastUID++
	if !waits || rapid.Bool().Draw(t, "reborn") {
		for _, other := range []string{"x", "y"} { // the pod is deleted, with all its requests
			delete(m.pods, name+"/"+other)
		}
		request = requestOf(name)
		request.Pod = &rule.PodFact{UID: types.UID(fmt.Sprintf("%s-%d", name, m.lastUID)), Name: name}
	}
	request.ID, request.Attempt, request.Since = id, fmt.Sprint(m.lastUID), m.now
	m.pods[name+"/"+id] = request
}

// converge makes the environment fair: calls arrive, the service rejects pod a and approves all
// others, and no process ends. Then every pod is approved, or rejected with a time of the next
// call.
func (m *machine) converge(t *rapid.T) {
	m.rule.Polls = true
	for range 40 {
		tasks := webhooktask.FromStatus(m.read())
		for _, r := range m.process.results {
			tasks = m.take(tasks, r)
		}
		m.process.results = nil
		tasks = tasks.Interrupted(m.knows, m.now).Expire(m.rule, m.now).Forget(m.waiting(), m.rule, m.now)
		tasks, posts := tasks.Open(m.waiting(), m.rule, m.now, m.newID)
		polls := tasks.Due(m.rule, func(id string) webhooktask.LastPoll { return m.process.polls[id] }, m.now)
		m.checkBounds(t, tasks)
		m.write(tasks)
		for _, post := range posts {
			m.process.calls[post.TraceID] = call{traceID: post.TraceID, requests: post.Requests, generation: m.rule.Generation}
		}
		for _, poll := range polls {
			m.process.calls["poll "+poll.TraceID] = call{traceID: poll.TraceID, poll: true}
		}
		for key, c := range m.process.calls {
			yes := []string{"b", "c", "d"}
			m.process.results = append(m.process.results, result{
				call: c,
				post: webhooktask.PostAnswer{FinishedNames: yes},
				poll: webhooktask.PollAnswer{Success: true, Stop: true, FinishedNames: yes},
			})
			delete(m.process.calls, key)
		}
		m.now = m.now.Add(time.Minute)
	}
	tasks := webhooktask.FromStatus(m.read())
	for _, request := range m.waiting() {
		task := tasks.Of(request, m.rule, m.now)
		if request.Pod.Name != "a" && task.State != rule.TaskApproved {
			t.Fatalf("%s is %+v in the end, want it approved", request.Key(), task)
		}
		underWay := task.State == rule.TaskCalling && m.knowsPost()
		if request.Pod.Name == "a" && !underWay && task.State != rule.TaskApproved && (task.State != rule.TaskFailed || task.RetryAt.IsZero()) {
			t.Fatalf("%s is %+v in the end, want it rejected with a time", request.Key(), task)
		}
	}
}

// knowsPost reports whether the answer to a POST is available for the next round.
func (m *machine) knowsPost() bool {
	return slices.ContainsFunc(m.process.results, func(r result) bool { return !r.call.poll })
}

func TestNoPodPassesUnapprovedAndNoCallIsMadeTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		t.Repeat(map[string]func(*rapid.T){
			"round":   m.round,
			"round 2": m.round,
			"serve":   m.serve,
			"serve 2": m.serve,
			"stir":    m.stir,
			"edit":    m.edit,
			"restart": func(*rapid.T) { m.restart() },
			"restart with another clock": func(t *rapid.T) {
				m.restart()
				m.now = m.now.Add(rapid.SampledFrom([]time.Duration{-time.Hour, time.Hour}).Draw(t, "set by"))
			},
			"time": func(t *rapid.T) {
				m.now = m.now.Add(time.Duration(rapid.IntRange(1, 90_000).Draw(t, "ms")) * time.Millisecond)
			},
			"": m.check,
		})
		m.converge(t)
	})
}
