// Package lanes shares the workers of a controller between namespaces, by the CPU time
// that their rounds use.
//
//	           ┌── debt <= burst ──> fast lane ── debt > burst ──┐
//	queue ── Enter                                             GoOn ── no place ──> gives way
//	           └── debt > burst ───> slow lane <── place free ───┘
//	                 └── no place: parked, until Leave returns it
//
// A namespace has a debt: the CPU time that it has used, less its share of Options.Rate, which all
// namespaces with a debt divide equally. Rounds in the fast lane take any free worker. Rounds in
// the slow lane take one of a few places; the namespace with the smallest debt gets the next place,
// and among equals the namespace that has waited longest. So most workers remain for all other
// namespaces, at any cost of rules in some namespaces.
//
// The package has no clock: times are arguments.
package lanes
