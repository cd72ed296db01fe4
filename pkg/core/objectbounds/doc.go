// Package objectbounds decides whether a PodTransitionRule or a PodTransitionPolicy is small
// enough to be loaded, and returns the stub that is loaded in its place when it is not.
//
// The schema of the CRD bounds every field of objects that are created or edited today. Objects
// that were stored under an older schema can be of any size that etcd accepts, and no schema bounds
// the whole object. Load is therefore the transform of the manager's cache, and Rule and Policy are
// part of admission.
package objectbounds
