package ownerscale

import (
	"container/heap"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/runtime/backoff"
)

// Kind is a kind of owner, with its version, as owner references name it.
type Kind struct {
	APIVersion string
	Kind       string
}

// Key identifies an owner. An owner is in the namespace of its pods; the UIDs of their references do not
// matter to that.
type Key struct {
	Namespace string
	UID       types.UID
}

// Owner is an owner as the references of its pods name it.
type Owner struct {
	Key
	Kind
	Name string
}

// Bounds of a Schedule. The zero value is not valid.
type Bounds struct {
	// Owners and Kinds are the numbers of owners and kinds that one namespace may have. Pods of
	// further owners count as pods of an owner that cannot be read.
	Owners, Kinds int

	// AtOnce is the number of owners that are read at a time, and EachAtOnce how many of them are
	// of one namespace.
	AtOnce, EachAtOnce int

	// Interval is the least time between two reads of one owner after changes of its spec, and
	// StatusInterval after other changes.
	Interval, StatusInterval time.Duration

	// FirstRetry is the delay after a failed read. It doubles with each failure, up to LastRetry.
	FirstRetry, LastRetry time.Duration
}

// DefaultBounds returns the bounds in use (docs/permits.md).
func DefaultBounds() Bounds {
	return Bounds{
		Owners: 200, Kinds: 8, AtOnce: 8, EachAtOnce: 2,
		Interval: time.Second, StatusInterval: 5 * time.Second,
		FirstRetry: 2 * time.Second, LastRetry: 5 * time.Minute,
	}
}

// Schedule decides which owner is read next, and when. It has no clock and makes no request. It is not
// safe for concurrent use.
type Schedule struct {
	bounds     Bounds
	namespaces map[string]*share
	running    int
	turn       uint64
}

// share is the part of one namespace.
type share struct {
	owners map[types.UID]*scheduled

	// kinds counts the admitted owners of each kind.
	kinds    map[Kind]int
	admitted int
	running  int

	// served is the turn of the last read.
	served uint64
	due    dueHeap
}

// scheduled is one owner.
type scheduled struct {
	owner Owner

	// admitted is false for an owner beyond the bounds of its namespace. It is never read.
	admitted bool

	// due is when to read the owner next; zero: only after a change.
	due time.Time

	// place in the heap of its namespace; -1 when it is not in there.
	place int

	// running is the turn of the read that has not ended; 0 when no read is running. Reads of one owner
	// follow each other, so that no result is older than the previous result.
	running  uint64
	last     time.Time
	failures int
}

// Read is one read of an owner.
type Read struct {
	Owner

	// Failures is the number of reads that have failed since the last that has not.
	Failures int

	turn uint64
}

// NewSchedule returns an empty schedule.
func NewSchedule(bounds Bounds) *Schedule {
	return &Schedule{bounds: bounds, namespaces: map[string]*share{}}
}

// Refer adds an owner, to be read now. It reports whether the owner is within the bounds of its
// namespace.
func (s *Schedule) Refer(owner Owner, now time.Time) (admitted bool) {
	n := s.namespaces[owner.Namespace]
	if n == nil {
		n = &share{owners: map[types.UID]*scheduled{}, kinds: map[Kind]int{}}
		s.namespaces[owner.Namespace] = n
	}
	if known := n.owners[owner.UID]; known != nil {
		return known.admitted
	}
	one := &scheduled{owner: owner, place: -1}
	n.owners[owner.UID] = one
	return n.admit(one, s.bounds, now)
}

// Release removes an owner. A read of it that has not ended counts until it has. Release returns the owners of
// the namespace that were beyond its bounds, and are within them now.
func (s *Schedule) Release(key Key, now time.Time) (admitted []Owner) {
	n := s.namespaces[key.Namespace]
	if n == nil || n.owners[key.UID] == nil {
		return nil
	}
	one := n.owners[key.UID]
	delete(n.owners, key.UID)
	n.unschedule(one)
	if one.admitted {
		n.admitted--
		if n.kinds[one.owner.Kind]--; n.kinds[one.owner.Kind] == 0 {
			delete(n.kinds, one.owner.Kind)
		}
		admitted = n.admitOthers(s.bounds, now)
	}
	s.forget(key.Namespace)
	return admitted
}

// forget removes a namespace without owners, once its reads have ended.
func (s *Schedule) forget(namespace string) {
	if n := s.namespaces[namespace]; len(n.owners) == 0 && n.running == 0 {
		delete(s.namespaces, namespace)
	}
}

// admitOthers admits the owners beyond the bounds that fit by now, in the order of their UIDs.
func (n *share) admitOthers(bounds Bounds, now time.Time) (admitted []Owner) {
	if n.admitted == len(n.owners) {
		return nil
	}
	for _, uid := range slices.Sorted(maps.Keys(n.owners)) {
		if one := n.owners[uid]; !one.admitted && n.admit(one, bounds, now) {
			admitted = append(admitted, one.owner)
		}
	}
	return admitted
}

func (n *share) admit(one *scheduled, bounds Bounds, now time.Time) bool {
	if n.admitted >= bounds.Owners || n.kinds[one.owner.Kind] == 0 && len(n.kinds) >= bounds.Kinds {
		return false
	}
	one.admitted = true
	n.admitted++
	n.kinds[one.owner.Kind]++
	n.schedule(one, now)
	return true
}

// Changed has an owner read again: the metadata of the object has changed, and with spec also its spec.
// It does nothing for an owner without pods.
func (s *Schedule) Changed(key Key, spec bool, now time.Time) {
	n := s.namespaces[key.Namespace]
	if n == nil || n.owners[key.UID] == nil || !n.owners[key.UID].admitted {
		return
	}
	one, interval := n.owners[key.UID], s.bounds.StatusInterval
	if spec {
		interval = s.bounds.Interval
	}
	if due := latest(now, one.last.Add(interval)); one.due.IsZero() || due.Before(one.due) && one.failures == 0 {
		n.schedule(one, due)
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// KindChanged has all owners of a kind read again: its watch has started, or has failed.
func (s *Schedule) KindChanged(kind Kind, now time.Time) {
	for _, n := range s.namespaces {
		if n.kinds[kind] == 0 {
			continue
		}
		for _, one := range n.owners {
			if one.admitted && one.owner.Kind == kind {
				n.schedule(one, latest(now, one.last.Add(s.bounds.Interval)))
			}
		}
	}
}

// Kinds returns how many namespaces have an owner of each kind.
func (s *Schedule) Kinds() map[Kind]int {
	kinds := map[Kind]int{}
	for _, n := range s.namespaces {
		for kind := range n.kinds {
			kinds[kind]++
		}
	}
	return kinds
}

// Next returns an owner that is to be read now, or how soon an owner may be due; 0: only after a
// change. The caller must call Done after the read, once.
func (s *Schedule) Next(now time.Time) (read Read, ok bool, wait time.Duration) {
	if s.running >= s.bounds.AtOnce {
		return Read{}, false, 0
	}
	var next *share
	for _, n := range s.namespaces {
		if n.running >= s.bounds.EachAtOnce || len(n.due) == 0 {
			continue
		}
		if left := n.due[0].due.Sub(now); left > 0 {
			if wait == 0 || left < wait {
				wait = left
			}
			continue
		}
		if next == nil || n.served < next.served || n.served == next.served && n.due[0].owner.Namespace < next.due[0].owner.Namespace {
			next = n
		}
	}
	if next == nil {
		return Read{}, false, wait
	}
	one := next.due[0]
	next.unschedule(one)
	s.turn++
	s.running++
	next.running++
	next.served, one.running, one.last = s.turn, s.turn, now
	return Read{Owner: one.owner, Failures: one.failures, turn: s.turn}, true, 0
}

// Retry is when an owner is read again without a change.
type Retry int

const (
	// Never is for an owner that was read: a change of its metadata has it read again.
	Never Retry = iota

	// Later is for an owner that needs time, such as an object that does not exist.
	Later

	// Failed is for an owner whose numbers cannot be read.
	Failed
)

// Done records the end of a read. It reports whether its owner still has pods: the result is of no use
// otherwise.
func (s *Schedule) Done(read Read, retry Retry, now time.Time) (present bool) {
	n := s.namespaces[read.Namespace]
	s.running--
	n.running--
	one := n.owners[read.UID]
	if one == nil || one.running != read.turn {
		s.forget(read.Namespace)
		return false
	}
	changed := one.due // while it was read
	one.running = 0
	switch retry {
	case Never:
		one.failures = 0
	case Later:
		one.failures = 0
		if changed.IsZero() {
			changed = now.Add(s.bounds.LastRetry)
		}
	case Failed:
		// Changes of an owner that cannot be read wait for the retry.
		changed = latest(changed, now.Add(backoff.Delay(s.bounds.FirstRetry, one.failures, s.bounds.LastRetry)))
		one.failures++
	}
	if !changed.IsZero() {
		n.schedule(one, changed)
	}
	return true
}

// schedule sets the time of an owner's next read; an owner that is being read is read again
// after that read.
func (n *share) schedule(one *scheduled, due time.Time) {
	n.unschedule(one)
	one.due = due
	if one.running == 0 {
		heap.Push(&n.due, one)
	}
}

func (n *share) unschedule(one *scheduled) {
	if one.place >= 0 {
		heap.Remove(&n.due, one.place)
	}
	one.due = time.Time{}
}

// dueHeap has the owners of a namespace that are to be read, the earliest first.
type dueHeap []*scheduled

func (h dueHeap) Len() int { return len(h) }

// Less compares by time, and then by UID.
func (h dueHeap) Less(i, j int) bool {
	if order := h[i].due.Compare(h[j].due); order != 0 {
		return order < 0
	}
	return strings.Compare(string(h[i].owner.UID), string(h[j].owner.UID)) < 0
}

func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *dueHeap) Push(one any) {
	added, ok := one.(*scheduled)
	if !ok {
		return
	}
	added.place = len(*h)
	*h = append(*h, added)
}

// Pop implements heap.Interface.
func (h *dueHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	last.place = -1
	return last
}
