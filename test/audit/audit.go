// Package audit reads the audit log of a Kubernetes API server: which user wrote which
// object, and with which outcome. Tests and the demo count writes with it.
//
// The log is JSON lines of audit.k8s.io/v1 Event, one per request, in a file that only
// grows, as the local control plane (test/controlplane) writes it: every write but lease
// renewals, before the response is complete.
package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// Event is one request that has been answered.
type Event struct {
	Time      time.Time // when the request came in
	Took      time.Duration
	User      string // such as "system:serviceaccount:podops-system:manager"
	UserAgent string
	Verb      string // "create", "update", "patch", "delete", "deletecollection"
	// Group and Resource are the group and the resource of the object ("apps",
	// "deployments"); the core group is "". Subresource is "" for the object itself.
	Group, Resource, Subresource string
	// Namespace is "" for cluster-scoped objects. Name is "" where the server
	// chose the name (generateName) and for deletecollection.
	Namespace, Name string
	Code            int    // HTTP status: 201, 403, 409, ...
	Message         string // of rejections

	// FailedOpen is true when a webhook did not answer, and its failurePolicy let the
	// request pass.
	FailedOpen bool

	// Unanswered are the names of these webhooks, sorted.
	Unanswered []string
}

// Refused reports whether the request was answered with an error.
func (e Event) Refused() bool {
	return e.Code >= 400
}

// Target returns the resource and subresource, "pods" or "pods/status".
func (e Event) Target() string {
	if e.Subresource == "" {
		return e.Resource
	}
	return e.Resource + "/" + e.Subresource
}

// Log is the audit log in a file. It holds only the path, so it is safe for concurrent use
// and needs no closing.
type Log struct {
	path string
}

// Open returns the log in the file at path. It fails when the file does not exist.
func Open(path string) (*Log, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("opening the audit log: %w", err)
	}
	return &Log{path: path}, nil
}

// Mark is a position between two lines of a log. The zero value is its beginning.
type Mark int64

// Mark returns the position after the last complete line.
func (l *Log) Mark() (Mark, error) {
	at := Mark(0)
	err := l.lines(0, func(line []byte) error {
		at += Mark(len(line))
		return nil
	})
	return at, err
}

// Since returns the events after mark, oldest first. It leaves an incomplete last line for
// the next call.
func (l *Log) Since(mark Mark) (Events, error) {
	var events Events
	err := l.lines(mark, func(line []byte) error {
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("decoding %.200q: %w", line, err)
		}
		if r.Stage == stageComplete || r.Stage == stagePanic {
			events = append(events, r.event())
		}
		return nil
	})
	return events, err
}

// All returns every event of the log, oldest first.
func (l *Log) All() (Events, error) {
	return l.Since(0)
}

// lines calls take with each complete line after mark, its newline included.
func (l *Log) lines(mark Mark, take func([]byte) error) error {
	file, err := os.Open(l.path)
	if err != nil {
		return fmt.Errorf("opening the audit log: %w", err)
	}
	defer file.Close()
	if _, err := file.Seek(int64(mark), io.SeekStart); err != nil {
		return fmt.Errorf("seeking in the audit log: %w", err)
	}
	reader := bufio.NewReaderSize(file, 1<<16)
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // the rest, if any, is an incomplete line
		}
		if err != nil {
			return fmt.Errorf("reading the audit log: %w", err)
		}
		if err := take(line); err != nil {
			return err
		}
	}
}

// The stages that end a request; others would count it twice.
const (
	stageComplete = "ResponseComplete"
	stagePanic    = "Panic"
)

// record holds the parsed fields of an audit.k8s.io/v1 Event.
type record struct {
	Stage                    string    `json:"stage"`
	Verb                     string    `json:"verb"`
	UserAgent                string    `json:"userAgent"`
	RequestReceivedTimestamp time.Time `json:"requestReceivedTimestamp"`
	StageTimestamp           time.Time `json:"stageTimestamp"`
	User                     struct {
		Username string `json:"username"`
	} `json:"user"`
	Annotations map[string]string `json:"annotations"`
	ObjectRef   struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"responseStatus"`
}

func (r record) event() Event {
	unanswered := r.unanswered()
	return Event{
		Time: r.RequestReceivedTimestamp, Took: r.StageTimestamp.Sub(r.RequestReceivedTimestamp), User: r.User.Username, UserAgent: r.UserAgent, Verb: r.Verb,
		Group: r.ObjectRef.APIGroup, Resource: r.ObjectRef.Resource, Subresource: r.ObjectRef.Subresource,
		Namespace: r.ObjectRef.Namespace, Name: r.ObjectRef.Name,
		Code: r.ResponseStatus.Code, Message: r.ResponseStatus.Message, FailedOpen: len(unanswered) > 0, Unanswered: unanswered,
	}
}

// unanswered reads the annotations "failed-open.<kind>.webhook.admission.k8s.io/<round>", which the API server sets.
func (r record) unanswered() []string {
	var names []string
	for key, name := range r.Annotations {
		if strings.HasPrefix(key, "failed-open.") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
