// Package uncontrolledpods counts the pods without the control label of workloads that have pods with it, so that
// availability rules count them as the available pods that they are, and not as missing ones.
//
// The cache has pods with the label only. A workload whose status counts more pods than the cache has for a while is
// looked at: its pods without the label are listed from the API server, and the available ones go into the index.
// The status alone does not suffice: while the controller of the workload does not run, it counts pods that are gone.
package uncontrolledpods
