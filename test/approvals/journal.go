package approvals

import (
	"cmp"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// maxEntries is the number of requests that are kept, and maxWeight the number of
	// bytes of text that they, and the tasks, may hold.
	maxEntries = 10_000
	maxWeight  = 32 << 20

	// maxTraces is the number of traceIds for which POSTs are counted.
	maxTraces = 10_000
)

// Decision is the result of a request.
type Decision string

// The results of a request.
const (
	Approved     Decision = "approved"      // all pods, now or earlier in the task
	PartApproved Decision = "part-approved" // some pods, and a last word on the others
	Rejected     Decision = "rejected"
	Accepted     Decision = "accepted"   // a task was created
	Processing   Decision = "processing" // the task goes on
	Stopped      Decision = "stopped"    // the task has stopped
	Failed       Decision = "failed"     // on purpose
	Silent       Decision = "silent"     // no answer
	Refused      Decision = "refused"    // the request was invalid
)

// Pod is a pod of a request.
type Pod struct {
	Name       string            `json:"name"`
	UID        string            `json:"uid,omitempty"`
	Parameters map[string]string `json:"parameters,omitempty"`
	Cause      string            `json:"cause,omitempty"`
}

func byName(a, b Pod) int { return strings.Compare(a.Name, b.Name) }

// Entry is one request, and its result.
type Entry struct {
	// Sequence counts requests from 1.
	Sequence int64     `json:"sequence"`
	Time     time.Time `json:"time"`

	Method string `json:"method"`
	Path   string `json:"path"`
	Query  string `json:"query,omitempty"` // as it was sent
	TLS    bool   `json:"tls,omitempty"`

	// Credentials is true when the request carried an Authorization header or a cookie.
	Credentials bool `json:"credentials,omitempty"`

	// TraceID and TaskID of a GET, and of a decision, are the ids of the task.
	TraceID string `json:"traceId,omitempty"`
	TaskID  string `json:"taskId,omitempty"`

	Namespace      string   `json:"namespace,omitempty"`
	Rule           string   `json:"rule,omitempty"` // "<PodTransitionRule>/<rule>"
	Stage          string   `json:"stage,omitempty"`
	OperationTypes []string `json:"operationTypes,omitempty"`

	// Pods are the pods of the request, or of its task; sorted by name.
	Pods []Pod `json:"pods,omitempty"`

	// Approved are the pods that this request approved and no earlier request of the task:
	// within a task a pod appears once. Sorted by name.
	Approved []Pod `json:"approved,omitempty"`

	Decision Decision `json:"decision,omitempty"`

	// Status is the HTTP status of the answer; 0 without an answer.
	Status  int    `json:"status,omitempty"`
	Message string `json:"message,omitempty"`
}

// weight returns roughly how many bytes its pods hold; the other fields are bounded.
func (e Entry) weight() int {
	sum := 0
	for _, pod := range e.Pods {
		sum += len(pod.Name) + len(pod.UID)
		for key, value := range pod.Parameters {
			sum += len(key) + len(value)
		}
	}
	return sum
}

// Approval is the approval of one pod.
type Approval struct {
	Time      time.Time
	TraceID   string
	Namespace string
	Rule      string
	Stage     string
	Pod       Pod
}

// journal keeps requests. It is safe for concurrent use.
type journal struct {
	mu       sync.Mutex
	sequence int64
	entries  []Entry
	weight   int // of all entries
	traces   map[string]trace
	oldest   []string // the keys of traces, oldest first
}

// trace holds the POSTs of one traceId.
type trace struct {
	namespace string
	posts     int
}

func newJournal() *journal { return &journal{traces: map[string]trace{}} }

// add adds the entry and returns it with its number.
func (j *journal) add(e Entry) Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.sequence++
	e.Sequence = j.sequence
	j.entries = append(j.entries, e)
	j.weight += e.weight()
	for len(j.entries) > maxEntries || j.weight > maxWeight {
		j.weight -= j.entries[0].weight()
		j.entries[0] = Entry{} // releases its texts
		j.entries = j.entries[1:]
	}
	return e
}

// posted counts a POST and returns how many there were with this traceId.
func (j *journal) posted(traceID, namespace string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	t, known := j.traces[traceID]
	if !known {
		if len(j.oldest) == maxTraces {
			delete(j.traces, j.oldest[0])
			j.oldest = j.oldest[1:]
		}
		j.oldest = append(j.oldest, traceID)
	}
	t = trace{namespace: namespace, posts: t.posts + 1}
	j.traces[traceID] = t
	return t.posts
}

// since returns the entries with a higher number, oldest first.
func (j *journal) since(sequence int64) []Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	at, _ := slices.BinarySearchFunc(j.entries, sequence+1, func(e Entry, wanted int64) int { return cmp.Compare(e.Sequence, wanted) })
	return slices.Clone(j.entries[at:])
}

// Log returns the requests of a namespace, or of all when that is empty, oldest first.
func (s *Service) Log(namespace string) []Entry {
	return slices.DeleteFunc(s.journal.since(0), func(e Entry) bool { return namespace != "" && e.Namespace != namespace })
}

// Approvals returns the approvals in a namespace, or in all when that is empty, oldest
// first.
func (s *Service) Approvals(namespace string) []Approval {
	var all []Approval
	for _, e := range s.Log(namespace) {
		for _, pod := range e.Approved {
			all = append(all, Approval{Time: e.Time, TraceID: e.TraceID, Namespace: e.Namespace, Rule: e.Rule, Stage: e.Stage, Pod: pod})
		}
	}
	return all
}

// Posts returns the number of POSTs with each traceId of a namespace, or of all
// namespaces when it is empty. Rejected POSTs count.
func (s *Service) Posts(namespace string) map[string]int {
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	counts := map[string]int{}
	for id, t := range s.journal.traces {
		if namespace == "" || t.namespace == namespace {
			counts[id] = t.posts
		}
	}
	return counts
}

// writeLog writes entries as JSON lines.
func writeLog(w io.Writer, entries []Entry) error {
	encoder := json.NewEncoder(w)
	for _, e := range entries {
		if err := encoder.Encode(e); err != nil {
			return err
		}
	}
	return nil
}
