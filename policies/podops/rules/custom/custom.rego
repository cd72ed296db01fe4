# METADATA
# title: rego
# description: |
#   The user's module, which is data.rule, judges one request: facts has everything that
#   policies/schema/input.json names. Its answer becomes a decision like that of any other rule,
#   with "asked" as the key of the request.
package podops.rules.custom

import data.podops.lib.applies
import data.podops.lib.complete
import data.podops.lib.enforcement

# METADATA
# description: |
#   The decision for the request, see the package enforcement, and what the module says besides:
#   said is {"messages": texts, "details": documents, "retry_after_seconds": numbers}, the last two
#   with one item at most. entry is the rule of the module that is asked, "allow" or "deny". Of a
#   request that the rule does not apply to, the module is not asked.
#   Undefined when a fact is missing, whether or not the module reads it.
# scope: document
decision(facts, parameters, entry) := object.union(settled, {"said": found.said}) if {
	complete.all(facts)
	requests := {"asked": {"pod": facts.pod, "operation": facts.operation}}
	found := _found(applies.split({"stage": facts.stage, "requests": requests}, parameters), entry)
	settled := enforcement.settle(parameters.enforcement, {
		"passed": {"asked"} - object.keys(found.withheld),
		"takes": set(),
		"withheld": found.withheld,
		"short": {},
	})
}

# The module comes last in each body: one that fails must not matter for an exempt request.
_found(split, _) := _passing if split.exempt == {"asked"}

_found(split, entry) := _judged(entry) if split.subject == {"asked"}

_nothing := {"messages": [], "details": [], "retry_after_seconds": []}

_passing := {"withheld": {}, "said": _nothing}

_withheld(code, said) := {"withheld": {"asked": code}, "said": object.union(_nothing, said)}

# Undefined is an empty set, so that no "not" has to look at it.
_allow := {value | value := data.rule.allow}

_reasons := [value | value := data.rule.reason]

_denials := [value | value := data.rule.deny]

# A difference, since a comparison would be an error of this module if allow can never be true.
_judged("allow") := _passing if {
	count(_allow) == 1
	count(_allow - {true}) == 0
}

_judged("allow") := _withheld("NotAllowed", {"messages": _reasons}) if {
	count(_allow - {false}) == 0
	every reason in _reasons { is_string(reason) }
}

_judged("allow") := _withheld("WrongType", {"messages": [message]}) if {
	count(_allow - {false}) == 0
	some reason in _reasons
	not is_string(reason)
	message := sprintf("reason is of type %s, not a string", [type_name(reason)])
}

_judged("allow") := _withheld("WrongType", {"messages": [message]}) if {
	some value in _allow
	not is_boolean(value)
	message := sprintf("allow is of type %s, not true or false", [type_name(value)])
}

_judged("deny") := _passing if _denials == [set()]

_judged("deny") := _withheld("Denied", _said(_denials[0])) if {
	is_set(_denials[0])
	count(_denials[0]) > 0
	every denial in _denials[0] { _is_denial(denial) }
}

_judged("deny") := _withheld("WrongType", {"messages": [concat("", [
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

# Members of a set come in order, so the first ones are always the same.
_said(denials) := {
	"messages": array.slice([_message(denial) | some denial in denials], 0, 10),
	"details": array.slice([denial.details | some denial in denials], 0, 1),
	"retry_after_seconds": [min(delays) | count(delays) > 0],
} if {
	delays := [denial.retry_after_seconds | some denial in denials]
}

_message(denial) := denial if is_string(denial)

_message(denial) := denial.message
