// Package podfacts gathers the facts about a pod that the pod itself does not carry: whether
// the Services that it names, or that select it, are there. It reads from a cache and confirms
// with the API server only what would change the pod.
package podfacts
