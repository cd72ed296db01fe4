// Package operator is the controller of KVStoreClusters. It gathers a plan.Snapshot, lets package plan
// decide, and carries the decision out. Each pod that it removes goes through PodOpsLifecycle, so
// PodTransitionRules, PodDisruptionBudgets and load balancers apply to it.
package operator
