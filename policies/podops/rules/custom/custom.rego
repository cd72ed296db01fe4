# METADATA
# title: rego
# description: |
#   The user's module, which is data.rule, is evaluated for one request: facts has every field of
#   policies/schema/input.json. Its value becomes a decision like that of any other rule, with
#   "request" as the key of the request.
package podops.rules.custom

import data.podops.lib.applies
import data.podops.lib.complete
import data.podops.lib.enforcement

# METADATA
# description: |
#   The decision for the request, see the package enforcement, with the explanation of the module:
#   {"messages": strings, "details": documents, "retry_after_seconds": numbers}, the last two with
#   one item at most. entry is the entry point of the module, "allow" or "deny". The module is not
#   evaluated for a request that the rule does not apply to.
#   Undefined if a fact is missing, whether or not the module reads it.
# scope: document
decision(facts, parameters, entry) := object.union(applied, {"explanation": found.explanation}) if {
	complete.all(facts)
	requests := {"request": {"pod": facts.pod, "operation": facts.operation}}
	found := _found(applies.split({"stage": facts.stage, "requests": requests}, parameters), entry)
	applied := enforcement.apply(parameters.enforcement, {
		"passed": {"request"} - object.keys(found.withheld),
		"needs_slot": set(),
		"withheld": found.withheld,
		"lacking": {},
	})
}

# The module comes last in each body: an error in it must not matter for an exempt request.
_found(split, _) := _passing if split.exempt == {"request"}

_found(split, entry) := _evaluated(entry) if split.subject == {"request"}

_nothing := {"messages": [], "details": [], "retry_after_seconds": []}

_passing := {"withheld": {}, "explanation": _nothing}

_withheld(code, explanation) := {"withheld": {"request": code}, "explanation": object.union(_nothing, explanation)}

# Undefined becomes an empty set, so that no rule has to negate it.
_allow := {value | value := data.rule.allow}

_reasons := [value | value := data.rule.reason]

_denials := [value | value := data.rule.deny]

# A difference, since the compiler of this module would reject a comparison if allow can never be
# true.
_evaluated("allow") := _passing if {
	count(_allow) == 1
	count(_allow - {true}) == 0
}

_evaluated("allow") := _withheld("NotAllowed", {"messages": _reasons}) if {
	count(_allow - {false}) == 0
	every reason in _reasons { is_string(reason) }
}

_evaluated("allow") := _withheld("WrongType", {"messages": [message]}) if {
	count(_allow - {false}) == 0
	some reason in _reasons
	not is_string(reason)
	message := sprintf("reason is of type %s, not a string", [type_name(reason)])
}

_evaluated("allow") := _withheld("WrongType", {"messages": [message]}) if {
	some value in _allow
	not is_boolean(value)
	message := sprintf("allow is of type %s, not true or false", [type_name(value)])
}

_evaluated("deny") := _passing if _denials == [set()]

_evaluated("deny") := _withheld("Denied", _explanation(_denials[0])) if {
	is_set(_denials[0])
	count(_denials[0]) > 0
	every denial in _denials[0] { _is_denial(denial) }
}

_evaluated("deny") := _withheld("WrongType", {"messages": [concat("", [
	"deny has a member that is neither a string nor an object with message (a string), and ",
	"at most retry_after_seconds (a number above 0) and details",
])]}) if {
	ill := [denial | some denial in _denials[0]; not _is_denial(denial)]
	count(ill) > 0
}

_is_denial(denial) if is_string(denial)

_is_denial(denial) if {
	is_string(denial.message)
	_is_delay(object.get(denial, "retry_after_seconds", 1))
	count(object.keys(denial) - {"message", "retry_after_seconds", "details"}) == 0
}

_is_delay(seconds) if {
	is_number(seconds)
	seconds > 0
}

# Members of a set are sorted, so the first ones are always the same.
_explanation(denials) := {
	"messages": array.slice([_message(denial) | some denial in denials], 0, 10),
	"details": array.slice([denial.details | some denial in denials], 0, 1),
	"retry_after_seconds": [min(delays) | count(delays) > 0],
} if {
	delays := [denial.retry_after_seconds | some denial in denials]
}

_message(denial) := denial if is_string(denial)

_message(denial) := denial.message
