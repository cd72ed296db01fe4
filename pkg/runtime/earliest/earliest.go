// Package earliest finds the earliest of many times that come and go.
package earliest

import (
	"container/heap"
	"time"
)

// Times is a set of keys with a time each. A change costs the logarithm of their number, and First costs
// nothing. The zero value is empty. It is not safe for concurrent use.
type Times[K comparable] struct {
	ordered ordered[K]
}

// Set adds a key, or replaces its time.
func (t *Times[K]) Set(key K, at time.Time) {
	if place, has := t.ordered.places[key]; has {
		t.ordered.entries[place].at = at
		heap.Fix(&t.ordered, place)
		return
	}
	if t.ordered.places == nil {
		t.ordered.places = map[K]int{}
	}
	heap.Push(&t.ordered, entry[K]{key: key, at: at})
}

// Remove removes a key, if it is in the set.
func (t *Times[K]) Remove(key K) {
	if place, has := t.ordered.places[key]; has {
		heap.Remove(&t.ordered, place)
	}
}

// First returns the earliest time. It returns false for an empty set.
func (t *Times[K]) First() (at time.Time, ok bool) {
	if t.Len() == 0 {
		return time.Time{}, false
	}
	return t.ordered.entries[0].at, true
}

// Len returns how many keys are in the set.
func (t *Times[K]) Len() int { return len(t.ordered.entries) }

type entry[K comparable] struct {
	key K
	at  time.Time
}

// ordered implements heap.Interface, and records the place of each key.
type ordered[K comparable] struct {
	entries []entry[K]
	places  map[K]int
}

// Len implements sort.Interface.
func (o *ordered[K]) Len() int { return len(o.entries) }

// Less implements sort.Interface.
func (o *ordered[K]) Less(i, j int) bool { return o.entries[i].at.Before(o.entries[j].at) }

// Swap implements sort.Interface.
func (o *ordered[K]) Swap(i, j int) {
	o.entries[i], o.entries[j] = o.entries[j], o.entries[i]
	o.places[o.entries[i].key], o.places[o.entries[j].key] = i, j
}

// Push implements heap.Interface.
func (o *ordered[K]) Push(added any) {
	if e, ok := added.(entry[K]); ok {
		o.places[e.key] = len(o.entries)
		o.entries = append(o.entries, e)
	}
}

// Pop implements heap.Interface.
func (o *ordered[K]) Pop() any {
	last := o.entries[len(o.entries)-1]
	o.entries[len(o.entries)-1] = entry[K]{} // which keeps no key alive
	o.entries = o.entries[:len(o.entries)-1]
	delete(o.places, last.key)
	return last
}
