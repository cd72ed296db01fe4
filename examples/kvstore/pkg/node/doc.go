// Package node is one member of the replicated key-value store: a machine.Machine behind
// hashicorp/raft.
//
// Members have an id and a host, which are the name and the host of a pod of a
// StatefulSet: both stay when the pod is replaced, while its address changes. Raft knows
// hosts only, and each new connection resolves them.
package node
