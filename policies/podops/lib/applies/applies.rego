# METADATA
# title: Whether a rule applies
# description: |
#   A request passes without evaluation of the rule if the pod skips the rule, if the type of the
#   operation is not one of the rule's conditions, or if the rule's filter does not match the pod.
package podops.lib.applies

import data.podops.lib.selector

# METADATA
# description: |
#   Splits requests into {"exempt": keys, "subject": keys}: requests that the rule does not
#   apply to, and requests that it must evaluate. A request without one of the facts that decide
#   this is in neither, whether or not this rule reads the fact, so it is withheld.
#   parameters.conditions and parameters.filter are optional.
#   Undefined if the rule has no name or is evaluated in another stage.
# scope: document
split(facts, parameters) := {"exempt": exempt, "subject": complete - exempt} if {
	facts.stage == parameters.stage
	is_string(parameters.name)
	is_object(facts.requests)
	complete := {key |
		some key, request in facts.requests
		is_array(request.pod.skip_rules)
		is_object(request.pod.labels)
		is_string(request.operation.type)
	}
	exempt := complete & union({
		_skipping(facts.requests, parameters),
		_of_other_types(facts.requests, parameters),
		_filtered_out(facts.requests, parameters),
	})
}

_skipping(requests, parameters) := {key | some key, request in requests; parameters.name in request.pod.skip_rules}

_of_other_types(_, parameters) := set() if count(object.get(parameters, "conditions", [])) == 0

_of_other_types(requests, parameters) := object.keys(requests) - of_these if {
	is_array(parameters.conditions)
	count(parameters.conditions) > 0
	of_these := {key | some key, request in requests; request.operation.type in parameters.conditions}
}

# A filter that cannot be read excludes no pod.
_filtered_out(requests, parameters) := {key |
	some key, request in requests
	selector.matches(request.pod.labels, parameters.filter) == false
}
