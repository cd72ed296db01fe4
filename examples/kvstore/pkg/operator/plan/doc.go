// Package plan decides the next steps of a KVStoreCluster: its upgrade, its scale-in and its deletion.
// It is pure: it maps a Snapshot of the reports of the API server and the store, and the time, to a
// Decision.
//
// An upgrade is a record in the status of the cluster. It is written before the step that it
// describes, and the StatefulSet follows from it, so an operator that ends at any point is replaced by
// another that continues:
//
//	          permitted, does not lead            in service
//	Waiting ----------------------------> Replacing -----> Checking (Canary) --+
//	   ^    partition N+1, image new      partition N         health check     | passed
//	   +------------------------- ordinal N-1 ---------------------------------+
//	   |
//	   | not ready in time, health check failed, spec.version changed
//	   v
//	Waiting (rolling back) -> Replacing -> ... -> RolledBack
//	image old, pods are deleted one by one, unhealthy pods first
//
// Approve is the decision of PodOps' hook: which pods may be operated on, by any component.
package plan
