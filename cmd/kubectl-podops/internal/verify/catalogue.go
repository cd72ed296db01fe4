package verify

import (
	"maps"

	"github.com/podops-dev/podops/pkg/engine/opa/absence"
)

// Levels of findings.
const (
	levelError   = "error"
	levelWarning = "warning"
	levelNote    = "note"
)

// check is a kind of finding.
type check struct {
	// Level is error for objects that admission denies and for rules that block all pods, warning for probable
	// mistakes, note for the rest.
	Level string

	// Title describes the mistake, and Fix the correction.
	Title, Fix string
}

// catalogue returns all checks by their ids.
func catalogue() map[string]check {
	checks := objectChecks()
	maps.Copy(checks, moduleChecks())
	return checks
}

// objectChecks returns the checks of objects.
func objectChecks() map[string]check {
	return map[string]check{
		"unknown-field":  {levelError, "The schema does not have the field", "Correct its name; kubectl explain lists the fields."},
		"schema":         {levelError, "A value does not fit the schema or its CEL rules", "Set a value that the message allows."},
		"empty-selector": {levelError, "The selector is empty, and would catch every pod of the namespace", "Select pods by a label."},
		"invalid-bound": {
			levelError, "A bound is neither a number nor a percentage", "Write a number without quotes, such as 1, or a percentage without spaces, such as 25%.",
		},
		"invalid-field": {levelError, "Admission denies the object", "Follow the message."},
		"invalid-parameters": {
			levelError, "The parameters do not fit the schema of the PodTransitionPolicy", "Correct them; spec.parameters of the policy has the schema.",
		},
		"policy-not-found":      {levelWarning, "No file has the PodTransitionPolicy of the rule", "Add its file: until then the rule withholds every pod."},
		"never-passes":          {levelError, "No pod ever passes the rule", "Loosen the rule."},
		"passes-with-surge":     {levelNote, "An available pod passes only while a rollout surges", "Loosen the rule if pods are deleted or evicted otherwise."},
		"filter-matches-no-pod": {levelWarning, "The rule applies to no pod", "Make the filter and the selector agree."},
		"unknown-operation": {
			levelNote, "PodOps itself begins no operation of this type for this stage", "Correct the type, unless an operation controller of yours begins it.",
		},
		"fixed-order": {
			levelNote, "A StatefulSet replaces its pods in a fixed order, and the rule can stop it at one pod",
			"Move what keeps the pod (such as leadership), or delete a lower pod: kubectl podops explain prints the command.",
		},
		"disabled-rule":         {levelNote, "The rule is disabled", "Delete it, or enable it."},
		"no-enforced-rule":      {levelNote, "No rule is enforced", "Set enforcement: Enforce when the counts of status.rules are as expected."},
		"exempt-without-effect": {levelWarning, "exemptRevisions has no effect in PostCheck", "Delete it."},
		"missing-reason":        {levelWarning, "The module gives no reason for withholding a pod", `Add "reason := sprintf(...)".`},
		"admission-warning":     {levelWarning, "Admission warns of the object", "Follow the message."},
	}
}

// moduleChecks returns the checks of modules.
func moduleChecks() map[string]check {
	return map[string]check{
		"undefined-parameter": {
			levelError, "The module reads a parameter that the schema does not have", "Correct the name, or add it to spec.parameters.",
		},
		"undefined-input": {levelError, "The module reads a field that the input does not have", "Correct the name: docs/policies.md lists the input."},
		"builtin-not-available": {
			levelError, "The module calls a function that rules may not call", "Use the builtins of policies/capabilities.json; facts come from input.",
		},
		"entry-point": {levelError, "The module has no valid entry point", `Write "allow if ...", or "deny contains message if ...".`},
		"rego-syntax": {levelError, "The module cannot be parsed", "Correct the syntax at the place."},
		"rego-type":   {levelError, "The module does not compile: a reference or a type is wrong", "Correct it at the place."},
		"rego-compile": {
			levelError, "The module does not compile, or breaks the contract of modules", "Correct it at the place; docs/policies.md has the contract.",
		},
		absence.FactID: {levelWarning, "A pod passes without a fact, although it waits with an unknown value of it", absence.Fix(absence.FactID)},
		absence.TimeID: {levelWarning, "A pod that does not serve passes, although it waits just after it began to", absence.Fix(absence.TimeID)},
		"absent-facts-cut": {
			levelNote, "Not every fact was removed: the module reads too many, or takes too long", "Check by tests that a pod without a fact waits: kubectl podops test",
		},
		absence.ParameterID: {
			levelWarning, "A pod passes if a rule does not set a parameter, although it waits with another value of it", absence.Fix(absence.ParameterID),
		},
		"absent-fact-in-message": {
			levelWarning, "The message reads a fact that can be absent: then nothing is denied", "Read it by object.get, with a default.",
		},
		"default-allow":      {levelWarning, "allow is true unless a rule makes it false: a condition that is undefined permits the pod", `Write "allow if ...".`},
		"empty-condition":    {levelWarning, "The condition is an empty object, which is always true", "Write the condition."},
		"label-is-no-number": {levelWarning, "A label or annotation is a string: it is greater than every number, and equal to none", "Convert it by to_number."},
		"format":             {levelWarning, "The format of a message does not fit its arguments", "Correct it at the place."},
		"time-zone":          {levelWarning, "A time zone does not exist, or is that of a machine", "Name a time zone of the IANA database, such as Europe/Berlin."},
		"schemas-annotation": {levelWarning, "The module has a schemas annotation, which has no effect", "Delete it."},
		"only-other-pods": {
			levelNote, "A fact of another pod withholds the pod, and the same fact of the pod itself does not",
			"Read the fact of input.pod, too: input.pods are the other pods.",
		},
		"unset-parameter": {
			levelWarning, "The module reads a parameter that the rule does not set", "Correct the name, or set it in rego.parameters.",
		},
		"unread-parameter": {levelWarning, "The rule sets a parameter that the module does not read", "Correct the name, or delete it."},
	}
}
