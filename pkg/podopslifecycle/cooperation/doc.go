// Package cooperation is the library of service controllers: programs that put pods behind a load balancer,
// register them in a directory, or monitor them, and that must end that before an operation on the pod
// starts. docs/service-controllers.md is the guide.
//
// A service controller shows by its protection finalizer on a pod that the traffic of the pod is on. PodOps
// starts no operation while a protection finalizer is there. Sync does all of it for one pod:
//
//	the pod expects traffic   traffic on,  then the finalizer is added
//	it does not               traffic off, then the finalizer is removed
//
// For a provider with entries to compare, create and delete, pkg/resourceconsist is the better start.
package cooperation
