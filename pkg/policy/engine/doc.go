// Package engine evaluates compiled rules. It is the only importer of OPA:
//
//	compile.Module --Prepare--> Program --Evaluate(counts, requests)--> policy.Result
//
// A Program is one rule with the library modules that it uses, compiled on its own: no rule can
// see or break another one. Evaluating costs time in proportion to the requests that are asked
// about, whatever the number of pods, so callers ask about requests whose facts changed and
// remember the rest (see Program.VerdictsNeedCounts).
//
// Everything here fails closed: what Rego leaves undefined, says twice, or says in another shape
// than agreed is withheld or an error, and no panic leaves the package.
package engine
