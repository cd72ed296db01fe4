# METADATA
# title: Complete facts
# description: |
#   Whether everything is there that policies/schema/input.json promises. A module of a user is
#   asked only then: "not" in it, or a set of denials, would take a fact that is missing for a "yes".
package podops.lib.complete

# METADATA
# description: |
#   True when no fact is missing, whichever of them a module reads. Undefined otherwise.
# scope: document
all(facts) if {
	_pod(facts.pod)
	_pods(facts.pods)
	_operation(facts.operation)
	_surroundings(facts)
	is_object(facts.rule)
	is_object(facts.parameters)
}

_operation(operation) if {
	is_string(operation.id)
	is_string(operation.type)
	is_number(operation.since)
}

_surroundings(facts) if {
	is_string(facts.stage)
	is_number(facts.now)
	is_string(facts.namespace.name)
	is_object(facts.namespace.labels)
	is_number(facts.counts.selected)
	is_number(facts.counts.desired)
	is_number(facts.counts.available)
	is_number(facts.counts.reserved)
	count([1 | count(facts.permits[_]) == 2]) == count(facts.permits)
}

_pod(pod) if {
	is_string(pod.name)
	is_string(pod.namespace)
	is_string(pod.uid)
	is_object(pod.labels)
	is_object(pod.annotations)
	is_string(pod.owner.kind)
	is_string(pod.owner.name)
	is_string(pod.owner.uid)
	is_string(pod.node)
	is_number(pod.created)
	is_boolean(pod.ready)
	is_boolean(pod.available)
	is_number(pod.available_since)
	is_boolean(pod.permitted)
	is_array(pod.skip_rules)
}

# There may be thousands of them, so they are counted only: a pod has 13 fields, and its owner 3.
_pods(pods) if {
	count([1 | count(pods[_]) == 13]) == count(pods)
	count([1 | count(pods[_].owner) == 3]) == count(pods)
}
