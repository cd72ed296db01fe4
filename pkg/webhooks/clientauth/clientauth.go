// Package clientauth carries through an admission review whether its sender is known to
// be the API server. Without a client certificate any client that reaches the port can forge
// a review: it may name any namespace, object and user. The response to such a review
// reveals nothing that the review does not contain itself.
package clientauth

import "context"

type key struct{}

// WithVerified returns a context of a review. verified is true when the sender has
// proved to be the API server.
func WithVerified(ctx context.Context, verified bool) context.Context {
	return context.WithValue(ctx, key{}, verified)
}

// Verified reports whether the sender of the review has proved to be the API server. It
// is false in a context that does not come from WithVerified.
func Verified(ctx context.Context) bool {
	verified, _ := ctx.Value(key{}).(bool)
	return verified
}
