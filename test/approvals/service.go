package approvals

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/podops-dev/podops/pkg/runtime/text"
)

// Step is how far the service is with a request.
type Step string

const (
	// Arrived means that the request was read and nothing was decided yet.
	Arrived Step = "arrived"

	// Answered means that the answer was written.
	Answered Step = "answered"
)

// Watch is called for every request, by the goroutine that serves it: the request waits
// until Watch returns. At Arrived the entry has no decision and no number. A decision on
// the page is reported at Answered only.
type Watch func(Step, Entry)

// Service decides requests and keeps their state. It is safe for concurrent use.
type Service struct {
	watch   Watch
	journal *journal
	pages   *http.ServeMux

	mu     sync.Mutex // guards tasks, and their contents
	tasks  []*task    // oldest first
	weight int        // of all tasks
}

// New returns a service without state. watch may be nil.
func New(watch Watch) *Service {
	if watch == nil {
		watch = func(Step, Entry) {}
	}
	s := &Service{watch: watch, journal: newJournal()}
	s.pages = s.newPages()
	return s
}

// ServeHTTP answers one request.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if page, pattern := s.pages.Handler(r); pattern != "" {
		page.ServeHTTP(w, r)
		return
	}
	entry, set, decide := s.read(r)
	s.watch(Arrived, entry)
	wait(r.Context(), set.after)
	reply, entry := s.settle(entry, decide)
	if reply.silent {
		<-r.Context().Done()
	}
	reply.write(w)
	s.watch(Answered, entry)
}

// read returns the pods of a request, and how it is decided. decide is called with mu held.
func (s *Service) read(r *http.Request) (entry Entry, set settings, decide func() reply) {
	entry = Entry{
		Time: time.Now(), Method: cut(r.Method), Path: cut(r.URL.Path), Query: cut(r.URL.RawQuery), TLS: r.TLS != nil,
		Credentials: r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "",
	}
	refuse := func(status int, err error) (Entry, settings, func() reply) {
		return entry, set, func() reply { return refusal(status, err) }
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return refuse(http.StatusBadRequest, err)
	}
	isPoll := r.Method == http.MethodGet && r.URL.Path == "/result"
	set, err = readSettings(query, isPoll)
	if err != nil {
		return refuse(http.StatusBadRequest, err)
	}
	if set.bearer != "" && r.Header.Get("Authorization") != "Bearer "+set.bearer {
		return refuse(http.StatusUnauthorized, errors.New("the bearer token is wrong or missing"))
	}
	if isPoll {
		t, err := s.find(query)
		if err != nil {
			return refuse(http.StatusNotFound, err)
		}
		return t.onto(entry), set, t.poll
	}
	_, immediate := answers()[r.URL.Path]
	_, planned := plans()[r.URL.Path]
	switch {
	case !immediate && !planned:
		return refuse(http.StatusNotFound, errors.New("the path is not known"))
	case r.Method != http.MethodPost:
		return refuse(http.StatusMethodNotAllowed, errors.New("want POST"))
	}
	q, err := readQuestion(r)
	if err == nil {
		err = q.check()
	}
	if err != nil {
		entry.TraceID, entry.Namespace = cut(q.TraceID), cut(q.Namespace)
		s.journal.posted(entry.TraceID, entry.Namespace)
		return refuse(http.StatusBadRequest, err)
	}
	entry = q.onto(entry)
	times := s.journal.posted(entry.TraceID, entry.Namespace)
	return entry, set, func() reply { return s.answer(entry, set, times) }
}

// cut bounds the length of a stored text.
func cut(stored string) string { return text.Prefix(stored, maxTextBytes) }

// onto copies the fields of a checked question to an entry.
func (q question) onto(e Entry) Entry {
	e.TraceID, e.Namespace, e.Rule, e.Stage = q.TraceID, q.Namespace, q.rule(), q.Stage
	e.OperationTypes, e.Pods = q.OperationTypes, q.pods()
	return e
}

// answer decides a POST. times is how many POSTs had this traceId.
func (s *Service) answer(entry Entry, set settings, times int) reply {
	if answer, ok := answers()[entry.Path]; ok {
		return answer(visit{settings: set, pods: entry.Pods, times: times})
	}
	return s.begin(entry, set)
}

// settle decides and logs the decision before the client can receive it.
func (s *Service) settle(entry Entry, decide func() reply) (reply, Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reply := decide()
	entry.Decision, entry.Approved, entry.Status, entry.Message = reply.decision, reply.approved, reply.status, reply.message
	if reply.taskID != "" {
		entry.TaskID = reply.taskID
	}
	if reply.silent {
		entry.Status = 0
	}
	return reply, s.journal.add(entry)
}

// wait delays an answer, until ctx ends.
func wait(ctx context.Context, after time.Duration) {
	if after <= 0 {
		return
	}
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// reply is a decision and its answer.
type reply struct {
	decision Decision
	approved []Pod
	taskID   string
	message  string
	silent   bool // there is no answer while the client waits

	status int
	header map[string]string
	body   any // JSON, or raw bytes
}

func refusal(status int, err error) reply {
	return reply{decision: Refused, status: status, message: err.Error(), body: postAnswer{Message: err.Error()}}
}

func (p reply) write(w http.ResponseWriter) {
	body, raw := p.body.([]byte)
	if !raw {
		// Bodies are of types that always marshal.
		body, _ = json.Marshal(p.body)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	for key, value := range p.header {
		w.Header().Set(key, value)
	}
	w.WriteHeader(p.status)
	_, _ = w.Write(body) // The client may have disconnected.
	_ = http.NewResponseController(w).Flush()
}
