package fairshare

import (
	"container/heap"
	"container/list"
	"maps"
	"slices"
	"sync"
)

// EntryBytes is the memory of a Cache for an entry itself. It is part of an entry's bytes.
const EntryBytes = 400

// Cache holds values up to a number of bytes. When they are exceeded, the owner with the most bytes
// loses the value that it has not used for the longest time. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	most int64

	mu      sync.Mutex
	used    int64
	entries map[K]*list.Element // of *entry[K, V]
	owners  map[string]*owner
	byBytes ownerHeap
}

type entry[K comparable, V any] struct {
	key   K
	value V
	bytes int64
	owner *owner
}

// owner contains the entries of one owner in a cache.
type owner struct {
	name  string
	bytes int64

	// recent has the last used entry first.
	recent *list.List

	// place is the index in the heap.
	place int
}

// NewCache returns an empty Cache with the given size in bytes.
func NewCache[K comparable, V any](bytes int64) *Cache[K, V] {
	return &Cache[K, V]{most: bytes, entries: map[K]*list.Element{}, owners: map[string]*owner{}}
}

// Get returns the value of a key, which counts as used now.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.entries[key]
	if !ok {
		return value, false
	}
	found := at.Value.(*entry[K, V])
	found.owner.recent.MoveToFront(at)
	return found.value, true
}

// Add adds or replaces the value of a key and reports whether it is in the cache afterwards. bytes is
// the size of the value, which must not grow while it is in the cache. The first owner of a key is
// charged for it until it is removed.
func (c *Cache[K, V]) Add(name string, key K, value V, bytes int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	bytes += EntryBytes
	if at, ok := c.entries[key]; ok {
		name = at.Value.(*entry[K, V]).owner.name
		c.remove(at)
	}
	if bytes > c.most {
		return false
	}
	charged := c.ownerNamed(name)
	c.entries[key] = charged.recent.PushFront(&entry[K, V]{key: key, value: value, bytes: bytes, owner: charged})
	c.charge(charged, bytes)
	for c.used > c.most {
		c.remove(c.byBytes[0].recent.Back())
	}
	_, kept := c.entries[key]
	return kept
}

// Remove removes a key.
func (c *Cache[K, V]) Remove(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.entries[key]; ok {
		c.remove(at)
	}
}

// Keys returns the keys, in no order. It does not count as a use of the values.
func (c *Cache[K, V]) Keys() []K {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.entries))
}

// Len returns the number of values.
func (c *Cache[K, V]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries)
}

// Bytes returns the size of all values together. It is never above the limit.
func (c *Cache[K, V]) Bytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
}

// BytesUsedBy returns the size of one owner's values.
func (c *Cache[K, V]) BytesUsedBy(name string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found, ok := c.owners[name]; ok {
		return found.bytes
	}
	return 0
}

func (c *Cache[K, V]) ownerNamed(name string) *owner {
	if found, ok := c.owners[name]; ok {
		return found
	}
	made := &owner{name: name, recent: list.New()}
	c.owners[name] = made
	heap.Push(&c.byBytes, made)
	return made
}

func (c *Cache[K, V]) charge(charged *owner, bytes int64) {
	c.used += bytes
	charged.bytes += bytes
	heap.Fix(&c.byBytes, charged.place)
}

// remove removes an entry, and its owner with the last entry.
func (c *Cache[K, V]) remove(at *list.Element) {
	gone := at.Value.(*entry[K, V])
	delete(c.entries, gone.key)
	gone.owner.recent.Remove(at)
	c.charge(gone.owner, -gone.bytes)
	if gone.owner.recent.Len() == 0 {
		heap.Remove(&c.byBytes, gone.owner.place)
		delete(c.owners, gone.owner.name)
	}
}

// ownerHeap has the owner with the most bytes first.
type ownerHeap []*owner

func (h ownerHeap) Len() int { return len(h) }

// Less breaks ties by name, so that the same calls always evict the same values.
func (h ownerHeap) Less(i, j int) bool {
	return h[i].bytes > h[j].bytes || h[i].bytes == h[j].bytes && h[i].name < h[j].name
}

func (h ownerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *ownerHeap) Push(pushed any) {
	made := pushed.(*owner)
	made.place = len(*h)
	*h = append(*h, made)
}

// Pop implements heap.Interface.
func (h *ownerHeap) Pop() any {
	last := len(*h) - 1
	popped := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return popped
}
