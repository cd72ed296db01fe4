// Package podfields reads single fields of a pod by path, as the parameters of webhook
// rules name them: the paths of the downward API (metadata.labels['zone'],
// status.podIP), and every other dotted path in the pod schema that ends at one
// value. It is pure.
//
// The value at such a path leaves the cluster. So paths to possible secrets are rejected:
// containers with their environment and commands, volumes, image pull secrets, and the
// annotation in which kubectl keeps a copy of all.
package podfields
