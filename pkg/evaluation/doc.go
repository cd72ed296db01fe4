// Package evaluation evaluates the rules of a namespace for the requests that wait, and allocates permits. It
// has no client and no recorder: a Snapshot goes in; an Evaluation and an Allocation, which are not modified
// after they were returned, come out. State is the state of one namespace between rounds.
//
//	Prepare -> Evaluate -> Allocate -> Count
//
// A Turn bounds the resources of a round: time, memory, a lane among other namespaces, and the slot for
// background writes. A round that has used it up withholds the requests that it has not reached.
package evaluation
