// Package demo is the adapter of the ResourceConsist manual, with a provider that lives in
// memory. It is the template for adapters of your own:
//
//   - statuses.go: what the provider has for a Service and for a pod, and when two of them
//     are equal;
//   - adapter.go: what is expected, what is there, and the verbs;
//   - provider.go: here a map; in an adapter of yours the client of a load balancer.
//
// Three things have to be right, and the framework does the rest. A current employee shows
// what the provider really does, not what it was told. Two statuses are equal only when
// traffic is on, or off, as expected. A verb that did half of its work says which half.
package demo
