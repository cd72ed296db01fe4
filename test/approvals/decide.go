package approvals

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// manualPath is the path whose pods wait for a decision.
const manualPath = "/manual"

//go:embed page.html
var page string

// ErrNotWaiting means that no pod of this name waits for a decision.
var ErrNotWaiting = errors.New("no such pod waits")

// ErrAmbiguous means that pods of this name wait in several namespaces.
var ErrAmbiguous = errors.New("pods of this name wait in several namespaces, so the namespace is required")

// Held is a pod that waits for a decision.
type Held struct {
	Namespace string    `json:"namespace,omitempty"`
	Rule      string    `json:"rule"`
	Stage     string    `json:"stage"`
	Pod       Pod       `json:"pod"`
	Since     time.Time `json:"since"`

	// LastCall is the time of the last request for the pod. When it is long ago, the rule no longer
	// waits.
	LastCall time.Time `json:"lastCall"`
}

// Ago returns the time since LastCall, human-readable.
func (h Held) Ago() time.Duration { return time.Since(h.LastCall).Round(time.Second) }

// Waiting returns the pods that wait for a decision in a namespace, or in all when that is
// empty, longest first. A pod of several tasks of one rule is listed once, with its
// youngest task.
func (s *Service) Waiting(namespace string) []Held {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Held
	for _, t := range s.tasks {
		if namespace != "" && namespace != t.post.Namespace {
			continue
		}
		for _, pod := range t.undecided("") {
			all = slices.DeleteFunc(all, func(h Held) bool {
				return h.Namespace == t.post.Namespace && h.Rule == t.post.Rule && h.Stage == t.post.Stage &&
					h.Pod.Name == pod.Name && h.Pod.UID == pod.UID
			})
			all = append(all, Held{
				Namespace: t.post.Namespace, Rule: t.post.Rule, Stage: t.post.Stage, Pod: pod, Since: t.post.Time, LastCall: t.lastCall,
			})
		}
	}
	return all
}

// undecided returns the pods of the task that wait for a decision and have the name; all
// when the name is empty.
func (t *task) undecided(name string) []Pod {
	if t.post.Path != manualPath || t.ended() {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(t.post.Pods), func(pod Pod) bool {
		return t.approved[pod.Name] || t.refused[pod.Name] || (name != "" && name != pod.Name)
	})
}

// decided is the plan of tasks whose pods wait for a decision: the decisions have approved
// pods already, and the task stops once all others were rejected.
func decided(t *task) ([]Pod, bool) {
	return nil, len(t.refused) > 0 && len(t.undecided("")) == 0
}

// Decide approves or rejects waiting pods: the pods with the name, or all when the name is
// empty; in the namespace, or, when it is empty, in the only namespace that has such pods.
// It returns their names. The errors are ErrNotWaiting and ErrAmbiguous.
func (s *Service) Decide(namespace, pod string, ok bool) ([]string, error) {
	entries, err := s.decide(namespace, pod, ok)
	var all []string
	for _, entry := range entries {
		s.watch(Answered, entry)
		all = append(all, names(entry.Pods)...)
	}
	slices.Sort(all)
	return slices.Compact(all), err
}

func (s *Service) decide(namespace, pod string, ok bool) ([]Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var tasks []*task
	namespaces := map[string]bool{}
	for _, t := range s.tasks {
		if (namespace == "" || namespace == t.post.Namespace) && len(t.undecided(pod)) > 0 {
			tasks = append(tasks, t)
			namespaces[t.post.Namespace] = true
		}
	}
	if len(tasks) == 0 {
		return nil, ErrNotWaiting
	}
	if len(namespaces) > 1 && pod != "" {
		return nil, ErrAmbiguous
	}
	var entries []Entry
	for _, t := range tasks {
		entries = append(entries, s.journal.add(t.decide(t.undecided(pod), ok)))
	}
	return entries, nil
}

// decide returns the decision, for the log.
func (t *task) decide(pods []Pod, ok bool) Entry {
	e := t.onto(Entry{Time: time.Now(), Method: http.MethodPost, Path: "/decide", Decision: Rejected, Status: http.StatusOK})
	e.Pods = pods
	into := t.refused
	if ok {
		e.Decision, e.Approved, into = Approved, pods, t.approved
	}
	for _, pod := range pods {
		into[pod.Name] = true
	}
	return e
}

// newPages returns the handlers for browsers and scripts.
func (s *Service) newPages() *http.ServeMux {
	pages := http.NewServeMux()
	parsed := template.Must(template.New("page").Parse(page))
	pages.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_ = parsed.Execute(w, s.Waiting(r.FormValue("namespace"))) // The client may have disconnected.
	})
	pages.HandleFunc("GET /waiting", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(slices.Concat([]Held{}, s.Waiting(r.FormValue("namespace"))))
	})
	pages.HandleFunc("GET /log", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/jsonl")
		_ = writeLog(w, s.Log(r.FormValue("namespace")))
	})
	pages.HandleFunc("POST /decide", s.serveDecide)
	return pages
}

// serveDecide handles a decision from the page, which it shows again, or from a script.
func (s *Service) serveDecide(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
	pod := r.FormValue("pod")
	ok, err := strconv.ParseBool(r.FormValue("ok"))
	if err != nil || (pod == "") != (r.FormValue("all") == "true") {
		http.Error(w, "want pod=<name>&ok=true, pod=<name>&ok=false, or all=true instead of the name", http.StatusBadRequest)
		return
	}
	decided, err := s.Decide(r.FormValue("namespace"), pod, ok)
	switch {
	case errors.Is(err, ErrNotWaiting):
		http.Error(w, err.Error(), http.StatusNotFound)
	case err != nil:
		http.Error(w, err.Error(), http.StatusConflict)
	case r.FormValue("back") == "true":
		http.Redirect(w, r, "/", http.StatusSeeOther)
	case ok:
		fmt.Fprintln(w, "approved:", strings.Join(decided, " "))
	default:
		fmt.Fprintln(w, "refused:", strings.Join(decided, " "))
	}
}
