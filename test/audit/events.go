package audit

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Events are requests, oldest first.
type Events []Event

// Filter says whether an event is wanted.
type Filter func(Event) bool

// Where gives the events that every filter wants; all of them without filters.
func (e Events) Where(filters ...Filter) Events {
	var wanted Events
	for _, event := range e {
		if !slices.ContainsFunc(filters, func(f Filter) bool { return !f(event) }) {
			wanted = append(wanted, event)
		}
	}
	return wanted
}

// Count is how many events every filter wants.
func (e Events) Count(filters ...Filter) int {
	return len(e.Where(filters...))
}

// Group is how many events share a key.
type Group struct {
	Key   string
	Count int
}

// CountBy counts the events by key, the largest group first, groups of one size
// by their key.
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

// User wants the requests of one user.
func User(name string) Filter {
	return func(e Event) bool { return e.User == name }
}

// ServiceAccount wants the requests of one service account.
func ServiceAccount(namespace, name string) Filter {
	return User("system:serviceaccount:" + namespace + ":" + name)
}

// Verb wants requests with one of the verbs.
func Verb(verbs ...string) Filter {
	return func(e Event) bool { return slices.Contains(verbs, e.Verb) }
}

// On wants requests to one of the targets: "pods" is the object itself alone,
// "pods/status" that subresource alone, "pods/*" the object and all of them.
func On(targets ...string) Filter {
	return func(e Event) bool {
		return slices.ContainsFunc(targets, func(target string) bool {
			whole, all := strings.CutSuffix(target, "/*")
			return e.Target() == target || all && e.Resource == whole
		})
	}
}

// InNamespace wants requests in one namespace.
func InNamespace(namespace string) Filter {
	return func(e Event) bool { return e.Namespace == namespace }
}

// Named wants requests about one object name.
func Named(name string) Filter {
	return func(e Event) bool { return e.Name == name }
}

// NamePrefix wants requests about objects whose name begins so.
func NamePrefix(prefix string) Filter {
	return func(e Event) bool { return strings.HasPrefix(e.Name, prefix) }
}

// Code wants requests that were answered with one of the HTTP status codes.
func Code(codes ...int) Filter {
	return func(e Event) bool { return slices.Contains(codes, e.Code) }
}

// Refused wants the requests that were answered with an error.
func Refused(e Event) bool { return e.Refused() }

// Accepted wants the requests that were not answered with an error.
func Accepted(e Event) bool { return !e.Refused() }

// Not wants what f does not.
func Not(f Filter) Filter {
	return func(e Event) bool { return !f(e) }
}
