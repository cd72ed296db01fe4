// Package podindex keeps the pods, owners and rules of each namespace, with counts: for each
// PodTransitionRule the numbers of selected and available pods, and the waiting pods. Each
// event updates the counts, so that the cost of an evaluation depends on the pods that
// changed and the pods that wait, and not on the number of pods. The package evaluates no
// rule.
//
// One watch of the pods fills the index and the cache of the manager, which share the pods
// (NewInformer). A reflector writes each list, event and bookmark to the index first, and the
// informer of the cache follows. The handlers of an informer could not fill the index: permits
// need to know exactly how far the pods have been seen (package permit), and handlers run
// behind the store of the informer, get the pods of a list in no order, and get no bookmark.
// A reflector writes in the order of resourceVersions and reports the resourceVersion that it
// has reached.
package podindex
