package webhookclient

import "context"

// traceParentKey is the key for the value of the header traceparent in a context.
type traceParentKey struct{}

// withTraceParent returns a context whose requests have a header traceparent. An empty value adds none.
func withTraceParent(ctx context.Context, value string) context.Context {
	if value == "" {
		return ctx
	}
	return context.WithValue(ctx, traceParentKey{}, value)
}

// traceParent returns the value of a request's header traceparent; empty for a request without the header.
func traceParent(ctx context.Context) string {
	value, _ := ctx.Value(traceParentKey{}).(string)
	return value
}
