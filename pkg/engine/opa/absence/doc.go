// Package absence finds, by running a user's module, the optional facts whose absence lets a pod pass: labels, annotations, fields
// that are empty for some pods, and parameters that a rule need not set.
//
//	module -> constants -> inputs (facts) -> verdicts with and without a fact -> Findings
//
// A rule that names the values which it withholds ("deny if the label hold is true") lets a pod pass without the
// label, and is right. A rule that names the values which it permits does not want to: there a pod with an unknown
// value waits, and a pod without one must wait as well. Only the second is a Finding. Rules about the existence of
// a fact permit no value of it, and are none either.
package absence
