// Package metricseries bounds the metric series that users of a cluster can create. A label whose
// values users choose (the name of a rule, the host of a webhook) has a series per value: without a
// bound, one namespace fills the memory of the manager and its scraper.
package metricseries

import "sync"

// Other is the label value that all names without a place share.
const Other = "other"

// maxNameBytes bounds a label value. No name of a Kubernetes object is longer, nor is a host.
const maxNameBytes = 320

// Limits bound the names that have a place of their own.
type Limits struct {
	// PerNamespace bounds the names of one namespace, so that no namespace takes the places of
	// the others.
	PerNamespace int

	// InAll bounds the names of all namespaces together.
	InAll int
}

// Names maps the names that users choose to label values: the first names of each namespace to
// themselves, every further name to Other. It is safe for concurrent use.
type Names struct {
	limits Limits

	mu     sync.Mutex
	placed map[string]map[string]bool // namespace -> names
	count  int
}

// NewNames returns an empty Names.
func NewNames(limits Limits) *Names {
	return &Names{limits: limits, placed: map[string]map[string]bool{}}
}

// Value returns the label value of a name: the name itself if it has a place or a place is free, or
// else Other. A name keeps its place until Release.
func (n *Names) Value(namespace, name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.placed[namespace][name] {
		return name
	}
	if len(n.placed[namespace]) >= n.limits.PerNamespace || n.count >= n.limits.InAll || len(name) > maxNameBytes {
		return Other
	}
	if n.placed[namespace] == nil {
		n.placed[namespace] = map[string]bool{}
	}
	n.placed[namespace][name] = true
	n.count++
	return name
}

// Lookup returns the label value of a name as Value does, but gives no place to a new name.
func (n *Names) Lookup(namespace, name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.placed[namespace][name] {
		return name
	}
	return Other
}

// Release frees the place of a name and reports whether it had a place. The caller
// then deletes the series of the name.
func (n *Names) Release(namespace, name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.placed[namespace][name] {
		return false
	}
	delete(n.placed[namespace], name)
	if len(n.placed[namespace]) == 0 {
		delete(n.placed, namespace)
	}
	n.count--
	return true
}

// Len returns how many names have a place.
func (n *Names) Len() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.count
}
