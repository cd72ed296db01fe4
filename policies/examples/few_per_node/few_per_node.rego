# METADATA
# title: Few per node
# description: |
#   Of the pods on one node at most parameters.pods are unavailable: a pod passes while fewer of the
#   others on its node are unavailable or hold a permit. A pod that is bound to no node passes. A
#   pod that is not available itself waits only for permits of others: it costs the node nothing,
#   and two broken pods would otherwise wait for each other.
package rule.few_per_node

# METADATA
# description: True if the node has room for one more unavailable pod.
# scope: document
allow if {
	_node != ""
	is_array(input.pods)
	count(_in_the_way) < input.parameters.pods
}

allow if _node == ""

# METADATA
# description: The first five pods on the node that the pod waits for.
# scope: document
default reason := "the pods on the node are not known"

reason := sprintf("node %s waits for: %s", [_node, concat(", ", array.slice(_in_the_way, 0, 5))]) if {
	count(_in_the_way) > 0
}

_node := input.pod.node

_harmless(other) if other.node != _node

_harmless(other) if {
	other.permitted == false
	other.available == true
}

_harmless(other) if {
	other.permitted == false
	input.pod.available == false
}

_in_the_way := [sprintf("%s %s", [object.get(other, "name", "a pod"), _state(other)]) |
	some other in input.pods
	not _harmless(other)
]

_state(other) := "holds a permit" if other.permitted

_state(other) := "is not available" if not other.permitted
