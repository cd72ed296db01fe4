// Package dispatch makes the HTTP calls of webhook rules between rounds. Package webhooktask determines
// which calls are due; a Dispatcher makes them, with the credentials of the Secret that a rule names; InFlight
// has the calls that are under way, and the results that the status of a PodTransitionRule does not have yet.
package dispatch
