// Package opa evaluates compiled rules. It is the only importer of OPA:
//
//	spec.Module --Prepare--> Program --Evaluate(environment, requests)--> rule.Result
//	source of a user --Inspect--> Inspection: what spec.Rule and the caller need to know of it
//
// What is compiled is shared: all rules of a built-in kind ask one program, and so do rules with the
// same module of a user. What a rule says, its literal, is a document that comes with each question,
// so a rule costs some 2 KB and no compilation. A module of a user is compiled alone: no rule can see
// or break another one. The library, compiled once, reads data.rule, and what answers there is the
// module (userRules in user.go).
//
// Evaluating costs time in proportion to the requests that are asked about, whatever the number of
// pods, so callers ask about requests whose facts changed and remember the rest (see
// Program.VerdictsNeedCounts and Program.Needs).
//
// A module of a user is not trusted. It is compiled only after Options.Precompile and a check of its
// weight, may call what policies/capabilities.json lists and nothing else, is asked about one
// request at a time in a goroutine of its own, and is answered for at the deadline (watchdog.go).
//
// Everything here fails closed: what Rego leaves undefined, says twice, or says in another shape
// than agreed is withheld or an error, and no panic leaves the package.
package opa
