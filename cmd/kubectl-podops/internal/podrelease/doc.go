// Package podrelease removes PodOps from a cluster without leaving a pod out of service.
//
// Each step makes sure that no component can repeat the changes that the next step reverts:
//
//	TrafficAdapters                              the programs of removed adapters must have stopped
//	webhook configurations, admission policies   no request begins a lifecycle or is deferred
//	the Deployment of the manager, to 0          no controller continues a lifecycle
//	pods                                         lifecycles end, gates open, finalizers of
//	                                             removed adapters, such as those inside of the
//	                                             manager, are removed
//	PodOperations                                their finalizers are removed
//	ReplicaSets                                  scale-downs that were kept go on without PodOps
//	PodDisruptionBudgets                         records of permits are removed
//	Services                                     clean finalizers of these adapters are removed
//
// It needs no manager and writes with the rights of its caller, so it works when the
// manager has failed. A second run continues where the first run stopped.
package podrelease
