package opa

import "context"

// slowLaneKey is the key of contexts that WithSlowLane returns.
type slowLaneKey struct{}

// WithSlowLane returns a context for evaluations of a namespace whose modules have used more than
// their share of CPU time. Such evaluations leave a worker free for others, if there are several.
func WithSlowLane(ctx context.Context) context.Context {
	return context.WithValue(ctx, slowLaneKey{}, true)
}

// InSlowLane reports whether WithSlowLane returned the context, or one that it is derived from.
func InSlowLane(ctx context.Context) bool { return ctx.Value(slowLaneKey{}) != nil }
