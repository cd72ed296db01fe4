// Package spec converts the rule of a PodTransitionRule to the document that the library in policies
// evaluates. It is pure: the same document for the same rule. It also has the parts that admission and
// the compiler share: which rules are valid (Validate) and which spellings are equivalent (Normalize).
// Package render shows a rule as readable Rego.
package spec
