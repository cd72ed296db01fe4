package podindex

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/core/rule"
)

// queue is a set of pods that wait, with their requests in order. A call of ordered costs time
// for each pod that changed since the last call, and almost no time if no pod changed.
type queue struct {
	pods map[types.UID]*pod

	// changed are the pods that were added, removed or changed since the list was made, as
	// they are in the list; nil for a pod that is not in the list.
	changed map[types.UID]*pod
	list    *waitingList

	// versions numbers the lists in all queues of an Index.
	versions *uint64
}

func newQueue(versions *uint64) *queue {
	return &queue{pods: map[types.UID]*pod{}, changed: map[types.UID]*pod{}, list: &waitingList{}, versions: versions}
}

// put adds a pod that waits, or replaces it.
func (q *queue) put(p *pod) {
	q.change(p.fact.UID)
	q.pods[p.fact.UID] = p
}

// drop removes a pod, if it is in the queue.
func (q *queue) drop(uid types.UID) {
	if q.has(uid) {
		q.change(uid)
		delete(q.pods, uid)
	}
}

// change records the entry in the list of a pod that is about to change.
func (q *queue) change(uid types.UID) {
	if _, noted := q.changed[uid]; !noted {
		q.changed[uid] = q.pods[uid]
	}
}

// has reports whether a pod is in the queue.
func (q *queue) has(uid types.UID) bool { return q.pods[uid] != nil }

// ordered returns the requests of all pods, oldest first.
func (q *queue) ordered() *waitingList {
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
	gone := make(map[*pod]bool, len(q.changed))
	for _, p := range q.changed {
		gone[p] = true
	}
	q.list = merged(q.list, fresh.entries, gone)
	*q.versions++
	q.list.version = *q.versions
	q.changed = map[types.UID]*pod{}
	return q.list
}

// merged returns a list without the pods in gone, and with the fresh entries in order.
func merged(old *waitingList, fresh []entry, gone map[*pod]bool) *waitingList {
	size := len(old.entries) + len(fresh)
	made := &waitingList{entries: make([]entry, 0, size), requests: make([]rule.Request, 0, size)}
	add := func(e entry, request *rule.Request) {
		made.entries, made.requests = append(made.entries, e), append(made.requests, *request)
	}
	for i, e := range old.entries {
		if gone[e.pod] {
			continue
		}
		for len(fresh) > 0 && inOrder(fresh[0].request(), &old.requests[i]) < 0 {
			add(fresh[0], fresh[0].request())
			fresh = fresh[1:]
		}
		add(e, &old.requests[i])
	}
	for _, e := range fresh {
		add(e, e.request())
	}
	return made
}

// waitingList has the requests of a queue at one moment. Snapshots share it, so it is never
// modified.
type waitingList struct {
	entries  []entry
	requests []rule.Request

	// version is unique among the lists of an Index; 0 for an empty list that never changed.
	version uint64

	once  sync.Once
	byUID map[types.UID]*pod
}

// entry is one request, and the pod as it was when the entry was added.
type entry struct {
	pod *pod

	// place is the index of the request in pod.requests.
	place int
}

func (e entry) request() *rule.Request { return &e.pod.requests[e.place] }

func (l *waitingList) add(p *pod) {
	for place := range p.requests {
		l.entries = append(l.entries, entry{pod: p, place: place})
	}
}

// pod returns the waiting pod with a UID; nil if no such pod waits. Few rounds call it, so
// the first call makes the map.
func (l *waitingList) pod(uid types.UID) *pod {
	l.once.Do(func() {
		l.byUID = make(map[types.UID]*pod, len(l.entries))
		for _, e := range l.entries {
			l.byUID[e.pod.fact.UID] = e.pod
		}
	})
	return l.byUID[uid]
}

// inOrder compares requests: oldest first. It compares field by field since it is called often,
// and a key would allocate a string.
func inOrder(a, b *rule.Request) int {
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
