package facts

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/policy"
)

// queue is a set of pods that wait. It keeps their requests in order from one look to the
// next, so that a look costs what has changed since, and next to nothing when nothing has.
type queue struct {
	pods map[types.UID]*pod

	// changed are the pods that came, went or changed since the list was made.
	changed map[types.UID]bool
	list    *waitingList
}

func newQueue() *queue {
	return &queue{pods: map[types.UID]*pod{}, changed: map[types.UID]bool{}, list: &waitingList{}}
}

// put adds a pod that waits, or replaces it.
func (q *queue) put(p *pod) {
	q.pods[p.fact.UID] = p
	q.changed[p.fact.UID] = true
}

// drop takes a pod out, if it is in.
func (q *queue) drop(uid types.UID) {
	if _, ok := q.pods[uid]; ok {
		delete(q.pods, uid)
		q.changed[uid] = true
	}
}

// has says whether a pod is in the queue.
func (q *queue) has(uid types.UID) bool { return q.pods[uid] != nil }

// look returns the requests of all pods, oldest first.
func (q *queue) look() *waitingList {
	if len(q.changed) == 0 {
		return q.list
	}
	fresh := &waitingList{}
	for uid := range q.changed {
		if p := q.pods[uid]; p != nil {
			fresh.add(p)
		}
	}
	slices.SortFunc(fresh.entries, func(a, b entry) int { return inOrder(a.request(), b.request()) })
	q.list = merged(q.list, fresh, q.changed)
	q.changed = map[types.UID]bool{}
	return q.list
}

// merged joins two lists in order. Of the pods that are left out, the first one says nothing.
func merged(old, fresh *waitingList, leftOut map[types.UID]bool) *waitingList {
	size := len(old.entries) + len(fresh.entries)
	made := &waitingList{entries: make([]entry, 0, size)}
	next := fresh.entries
	for _, e := range old.entries {
		if leftOut[e.pod.fact.UID] {
			continue
		}
		for len(next) > 0 && inOrder(next[0].request(), e.request()) < 0 {
			made.entries, next = append(made.entries, next[0]), next[1:]
		}
		made.entries = append(made.entries, e)
	}
	made.entries = append(made.entries, next...)
	made.requests = make([]policy.Request, 0, len(made.entries))
	for _, e := range made.entries {
		made.requests = append(made.requests, *e.request())
	}
	return made
}

// waitingList is what a queue held at one moment. It is never modified: views share it.
type waitingList struct {
	entries  []entry
	requests []policy.Request

	once  sync.Once
	byUID map[types.UID]*pod
}

// entry is one request, and the pod as it was when it was taken in.
type entry struct {
	pod *pod

	// place of the request among those of the pod.
	place int
}

func (e entry) request() *policy.Request { return &e.pod.requests[e.place] }

func (l *waitingList) add(p *pod) {
	for place := range p.requests {
		l.entries = append(l.entries, entry{pod: p, place: place})
	}
}

// pod returns a pod that waits; nil when there is none of this UID. Few rounds ask, so the
// map is made for the first that does.
func (l *waitingList) pod(uid types.UID) *pod {
	l.once.Do(func() {
		l.byUID = make(map[types.UID]*pod, len(l.entries))
		for _, e := range l.entries {
			l.byUID[e.pod.fact.UID] = e.pod
		}
	})
	return l.byUID[uid]
}

// inOrder is oldest first. It is written out step by step since it is called often, and a
// key is a string to be built.
func inOrder(a, b *policy.Request) int {
	if order := a.Since.Compare(b.Since); order != 0 {
		return order
	}
	if order := strings.Compare(a.Pod.Name, b.Pod.Name); order != 0 {
		return order
	}
	return cmp.Or(
		strings.Compare(string(a.Pod.UID), string(b.Pod.UID)),
		strings.Compare(string(a.Stage), string(b.Stage)),
		strings.Compare(a.ID, b.ID),
	)
}
