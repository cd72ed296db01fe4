// Package spec converts the rule of a PodTransitionRule to one small Rego module that calls the
// library in policies. It is pure: values in, text out, the same text for the same rule. It also
// has the parts that admission and the compiler share: which rules are valid (Validate) and which
// spellings are equivalent (Normalize).
package spec
