// Package offline evaluates the rules of given objects once, as the manager does, without a cluster:
//
//	Objects -> podindex -> evaluation.Prepare, Evaluate, Allocate -> Verdicts
//
// It writes nothing and calls no service: the answers of webhook services are given, or the
// verdict reports that an answer is needed.
package offline
