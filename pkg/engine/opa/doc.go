// Package opa evaluates compiled rules. It is the only importer of OPA:
//
//	spec.Module --Prepare--> Program --Evaluate(environment, requests)--> rule.Result
//	source of a user --Inspect--> Inspection: entry point and needs, for spec.Rule and the caller
//
// Compiled programs are shared: all rules of a built-in kind use one program, and so do rules with the
// same user's module. The literal of a rule is a document in the input of each evaluation, so a rule takes
// about 2 KB and no compilation. A user's module is compiled alone: no rule can read or break another
// rule. The library, compiled once, reads data.rule, and userRules (user_module.go) evaluates the module
// in its place.
//
// The cost of an evaluation depends on the number of requests and not on the number of pods, so
// callers evaluate requests whose facts changed and cache the other verdicts (see
// Program.VerdictsNeedCounts and Program.Needs).
//
// A user's module is not trusted. Options.Workers compile and evaluate it in other processes, which call
// Inspect and EvaluateModule there; an Engine without Workers does so in its own. The module is compiled
// only after an estimate of its cost, may call only the builtins of policies/capabilities.json, and is
// evaluated for one request at a time.
//
// The package fails closed: a decision that Rego leaves undefined, gives twice, or gives in another
// form is withheld or an error, and no panic leaves the package.
package opa
