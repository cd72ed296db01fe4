package export

import (
	"slices"

	"github.com/podops-dev/podops/pkg/core/tracing"
)

// limits bound a queue, in spans. A span takes about 1 KiB.
type limits struct {
	// all is the bound of all namespaces together, and namespace the bound of each.
	all, namespace int
}

// queue holds the spans that were not sent, by namespace. It is not safe for concurrent use.
type queue struct {
	limits  limits
	tenants map[string]*tenant

	// turns are the tenants in the order in which they take turns.
	turns []*tenant
	size  int
}

// tenant has the spans of a namespace, the oldest first.
type tenant struct {
	namespace string
	spans     []tracing.Span
}

func newQueue(l limits) *queue { return &queue{limits: l, tenants: map[string]*tenant{}} }

// add adds a span, and returns how many spans were dropped for it.
func (q *queue) add(span tracing.Span) (dropped int) {
	t := q.tenants[span.Namespace]
	if t == nil {
		t = &tenant{namespace: span.Namespace}
		q.tenants[span.Namespace], q.turns = t, append(q.turns, t)
	}
	t.spans = append(t.spans, span)
	q.size++
	switch {
	case len(t.spans) > q.limits.namespace:
		q.drop(t)
	case q.size > q.limits.all:
		q.drop(slices.MaxFunc(q.turns, func(a, b *tenant) int { return len(a.spans) - len(b.spans) }))
	default:
		return 0
	}
	return 1
}

// drop removes a span of a tenant: the oldest detail, or else the oldest span.
func (q *queue) drop(t *tenant) {
	at := max(0, slices.IndexFunc(t.spans, tracing.Span.IsDetail))
	t.spans = slices.Delete(t.spans, at, at+1)
	q.size--
	q.forget(t)
}

// take removes at most n spans, in turns of the namespaces.
func (q *queue) take(n int) []tracing.Span {
	taken := make([]tracing.Span, 0, min(n, q.size))
	for len(taken) < n && q.size > 0 {
		t := q.turns[0]
		taken = append(taken, t.spans[0])
		t.spans = t.spans[1:]
		q.size--
		q.turns = append(q.turns[1:], t)
		q.forget(t)
	}
	return taken
}

// forget removes a tenant without spans.
func (q *queue) forget(t *tenant) {
	if len(t.spans) > 0 {
		return
	}
	delete(q.tenants, t.namespace)
	q.turns = slices.DeleteFunc(q.turns, func(other *tenant) bool { return other == t })
}
