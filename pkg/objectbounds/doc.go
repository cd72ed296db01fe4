// Package objectbounds decides whether a PodTransitionRule or a PodTransitionPolicy is small
// enough to be loaded, and returns the stub that is loaded in its place when it is not.
//
// The schema of the CRD bounds every field of what is created or edited today. Objects that were
// stored under an older schema can be of any size that etcd takes, and the whole object is bounded
// by nothing in a schema. Load is therefore the transform of the manager's cache, and Rule and
// Policy are part of admission.
package objectbounds
