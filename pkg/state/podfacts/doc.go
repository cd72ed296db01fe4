// Package podfacts gathers the facts about a pod that the pod itself does not contain: whether
// the Services that it names, or that select it, exist. It reads from a cache and confirms
// with the API server only facts that would change the pod.
package podfacts
