package audit

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Events are requests, oldest first.
type Events []Event

// Filter reports whether an event is selected.
type Filter func(Event) bool

// Where returns the events that every filter selects; all of them without filters.
func (e Events) Where(filters ...Filter) Events {
	var wanted Events
	for _, event := range e {
		if !slices.ContainsFunc(filters, func(f Filter) bool { return !f(event) }) {
			wanted = append(wanted, event)
		}
	}
	return wanted
}

// Count returns how many events every filter selects.
func (e Events) Count(filters ...Filter) int {
	return len(e.Where(filters...))
}

// Group is a key and the number of its events.
type Group struct {
	Key   string
	Count int
}

// CountBy counts the events by key, the largest group first, groups of one size by their
// key.
func (e Events) CountBy(key func(Event) string) []Group {
	counts := map[string]int{}
	for _, event := range e {
		counts[key(event)]++
	}
	groups := make([]Group, 0, len(counts))
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		groups = append(groups, Group{key, counts[key]})
	}
	slices.SortStableFunc(groups, func(a, b Group) int { return cmp.Compare(b.Count, a.Count) })
	return groups
}

// ByUser is a key for CountBy.
func ByUser(e Event) string { return e.User }

// ByTarget is a key for CountBy: "patch pods/status".
func ByTarget(e Event) string { return e.Verb + " " + e.Target() }

// User selects the requests of one user.
func User(name string) Filter {
	return func(e Event) bool { return e.User == name }
}

// ServiceAccount selects the requests of one service account.
func ServiceAccount(namespace, name string) Filter {
	return User("system:serviceaccount:" + namespace + ":" + name)
}

// Verb selects requests with one of the verbs.
func Verb(verbs ...string) Filter {
	return func(e Event) bool { return slices.Contains(verbs, e.Verb) }
}

// On selects requests to one of the targets: "pods" is the object itself alone,
// "pods/status" that subresource alone, "pods/*" the object and all subresources.
func On(targets ...string) Filter {
	return func(e Event) bool {
		return slices.ContainsFunc(targets, func(target string) bool {
			whole, all := strings.CutSuffix(target, "/*")
			return e.Target() == target || all && e.Resource == whole
		})
	}
}

// InNamespace selects requests in one namespace.
func InNamespace(namespace string) Filter {
	return func(e Event) bool { return e.Namespace == namespace }
}

// Named selects requests for one object name.
func Named(name string) Filter {
	return func(e Event) bool { return e.Name == name }
}

// NamePrefix selects requests for objects whose name has the prefix.
func NamePrefix(prefix string) Filter {
	return func(e Event) bool { return strings.HasPrefix(e.Name, prefix) }
}

// Code selects requests that were answered with one of the HTTP status codes.
func Code(codes ...int) Filter {
	return func(e Event) bool { return slices.Contains(codes, e.Code) }
}

// Refused selects the requests that were answered with an error.
func Refused(e Event) bool { return e.Refused() }

// Accepted selects the requests that were not answered with an error.
func Accepted(e Event) bool { return !e.Refused() }

// Not selects the events that f does not.
func Not(f Filter) Filter {
	return func(e Event) bool { return !f(e) }
}
