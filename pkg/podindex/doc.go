// Package podindex keeps, per namespace, what rules are decided from: the pods, how many
// of them each PodTransitionRule selects, how many are available, and which wait. It
// counts as pods change, so that a decision costs what has changed and what waits, not
// what exists. It decides nothing.
//
// The index of pods is fed by a reflector of its own and not by the handlers of an
// informer. Permits need to know exactly how far the pods have been seen (package
// permit), and handlers cannot tell: they run behind the store of the informer, and a
// re-list reaches them in no order. A reflector writes to its store in the order of
// resourceVersions and says where it stands.
package podindex
