// Package podoperation decides the next steps of a PodOperation: which pods begin a lifecycle, are
// operated on, finish or are undone, and the content of the status. It is pure.
//
// The state of a target is read from the pod alone, so that a manager that starts again continues
// where its predecessor stopped:
//
//	Waiting     no label of the id
//	Preparing   operating/<id>
//	Operating   operating/<id> and operate/<id>; with a record: the action is written
//	Completing  a record with done, and labels of the id; or terminating
//	Succeeded   a record with done, and no label of the id; or gone, after a delete or an eviction
//	Failed      a record with the cause
//
// The record is an annotation (Record). The request that writes the action to a pod writes it, and
// the request that finishes the lifecycle completes it, so no pod is operated on twice.
//
// The package does not decide how many pods are operated on at a time. It begins all targets in order,
// and the rules of the pods permit them in the order in which they began.
package podoperation
