package apiserver

import (
	"context"
	"sort"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
)

// database is what etcd is to an API server: every object, one revision for all of them, and a bounded history of
// changes for watches. Its mutex is held for moments only.
type database struct {
	mu       sync.Mutex
	revision uint64
	tables   map[string]*table
	history  int
	// committed receives every change with the context of its request, in order, while mu is held.
	committed func(ctx context.Context, t *table, c change)
}

// table has the objects of one resource.
type table struct {
	resource schema.GroupResource
	records  map[string]record
	// changes are the latest changes in order. compacted is the revision of the last one that is no longer there.
	changes   []change
	compacted uint64
	watches   map[*watcher]struct{}
}

// record is an object as stored. The object and the data are never changed.
type record struct {
	object   runtime.Object
	data     []byte
	revision uint64
}

// change is a step of one object. before is nil for a new object, after for one that was removed.
type change struct {
	revision uint64
	time     time.Time
	key      string
	before   runtime.Object
	after    runtime.Object
	shared   events
}

// events are the event objects of a change, made once. now is the object after it, and last the object before it at the new revision,
// for a client that does not select the object any more.
type events struct {
	now  func() runtime.Object
	last func() (runtime.Object, error)
}

// table returns the table of a prefix, which it makes if need be.
func (d *database) table(prefix string, resource schema.GroupResource) *table {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tables[prefix]
	if t == nil {
		t = &table{resource: resource, records: map[string]record{}, watches: map[*watcher]struct{}{}}
		d.tables[prefix] = t
	}
	return t
}

// get returns the record of a key, and the revision of the database.
func (d *database) get(t *table, key string) (found record, exists bool, revision uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	found, exists = t.records[key]
	return found, exists, d.revision
}

// list returns the records whose keys are chosen, in the order of the keys, and the revision of the database.
func (d *database) list(t *table, chosen func(key string) bool) ([]record, uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return t.list(chosen), d.revision
}

func (t *table) list(chosen func(key string) bool) []record {
	keys := make([]string, 0, len(t.records))
	for key := range t.records {
		if chosen(key) {
			keys = append(keys, key)
		}
	}
	sort.Strings(keys)
	records := make([]record, len(keys))
	for i, key := range keys {
		records[i] = t.records[key]
	}
	return records
}

// swap stores the record of a key if its revision is still the expected one (0 for a key that does not exist), and
// reports whether it did. stamp is called with the new revision before the record can be seen. A nil object removes
// the key.
func (d *database) swap(
	ctx context.Context, t *table, key string, expected uint64, next record, stamp func(uint64) error,
) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	previous := t.records[key]
	if previous.revision != expected {
		return false, nil
	}
	revision := d.revision + 1
	if err := stamp(revision); err != nil {
		return false, err
	}
	d.revision = revision
	if next.object == nil {
		delete(t.records, key)
	} else {
		next.revision = revision
		t.records[key] = next
	}
	c := newChange(revision, key, previous.object, next.object)
	t.append(c, d.history)
	for w := range t.watches {
		w.wake()
	}
	d.committed(ctx, t, c)
	return true, nil
}

// newChange returns a change that happens now.
func newChange(revision uint64, key string, before, after runtime.Object) change {
	return change{
		revision: revision, time: time.Now(), key: key, before: before, after: after,
		shared: events{
			now: sync.OnceValue(func() runtime.Object { return newEncoded(after) }),
			last: sync.OnceValues(func() (runtime.Object, error) {
				last := before.DeepCopyObject()
				err := storage.APIObjectVersioner{}.UpdateObject(last, revision)
				return newEncoded(last), err
			}),
		},
	}
}

// append adds a change to the history, of which it keeps the latest ones.
func (t *table) append(c change, limit int) {
	t.changes = append(t.changes, c)
	if cut := len(t.changes) - limit; cut > 0 {
		t.compacted = t.changes[cut-1].revision
		t.changes = append([]change(nil), t.changes[cut:]...)
	}
}

// after returns the first change past a revision, if there is one, and whether the history still reaches back to the
// revision.
func (t *table) after(revision uint64) (next change, found, complete bool) {
	if revision < t.compacted {
		return change{}, false, false
	}
	i := sort.Search(len(t.changes), func(i int) bool { return t.changes[i].revision > revision })
	if i == len(t.changes) {
		return change{}, false, true
	}
	return t.changes[i], true, true
}
