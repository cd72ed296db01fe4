// Package spec turns the rule of a PodTransitionRule into the text of one small Rego module
// that calls the library in policies. It is pure: values in, text out, the same text for the same
// rule. It also holds what admission and the compiler must agree on: which rules are valid
// (Validate) and which spellings mean the same (Normalize).
package spec
