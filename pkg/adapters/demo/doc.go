// Package demo is the adapter of the ResourceConsist manual, with a provider that lives in
// memory. It is the template for new adapters:
//
//   - statuses.go: the items of Services and pods, and when two of them are equal;
//   - adapter.go: the expected and the current items, and the verbs;
//   - provider.go: here a map; in a real adapter the client of a load balancer.
//
// The framework relies on three properties of an adapter. A current employee is the state of
// the provider, not a record of earlier calls. Two statuses are equal only when traffic is
// on, or off, as expected. A verb that succeeds in part returns which items succeeded.
package demo
