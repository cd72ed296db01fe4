// Package release takes PodOps off a cluster without leaving a pod out of service.
//
// The order closes each way back before it undoes what came through it:
//
//	webhook configurations, admission policies   no request begins a lifecycle or is held
//	the Deployment of the manager, to 0          no controller continues a lifecycle
//	pods                                         lifecycles end, gates open, finalizers of
//	                                             the adapters inside of the manager go
//	Services                                     clean finalizers of these adapters go
//
// It needs no manager and writes with the rights of its caller, so it works when the
// manager has died. Running it again continues where it stopped.
package release
