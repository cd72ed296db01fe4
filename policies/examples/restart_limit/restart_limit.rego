# METADATA
# title: Limit of restarts
# description: |
#   A pod passes while no other pod has a container that restarted more than parameters.restarts
#   times: a rollout does not go on among pods that crash. A pod that exceeds the limit itself
#   passes, since its replacement begins at 0.
package rule.restart_limit

# METADATA
# description: True if no other pod exceeds the limit, or the pod does so itself.
# scope: document
allow if {
	is_number(input.parameters.restarts)
	every other in input.pods { _is_stable(other) }
}

allow if input.pod.restarts > input.parameters.restarts

# METADATA
# description: The first five pods that exceed the limit.
# scope: document
default reason := "the restarts of the other pods are not known"

reason := sprintf("pods with more than %d restarts: %s", [input.parameters.restarts, concat(", ", first)]) if {
	first := array.slice([other.name | some other in input.pods; not _is_stable(other)], 0, 5)
	count(first) > 0
}

_is_stable(other) if other.restarts <= input.parameters.restarts
