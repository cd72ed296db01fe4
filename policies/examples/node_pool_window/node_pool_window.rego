# METADATA
# title: Window per node pool
# description: |
#   A pod passes in the window of its node pool, every day. The first part of the node's name
#   denotes the pool: parameters.pools has a prefix and a window for each. Windows are local times
#   of parameters.time_zone; a window whose "to" is before its "from" ends on the next day. A pod
#   of no pool waits; a pod that is bound to no node passes, since it runs nowhere.
package rule.node_pool_window

# METADATA
# description: True in a window of a pool that the node belongs to.
# scope: document
allow if {
	some pool in _pools
	_within(pool)
}

allow if input.pod.node == ""

# METADATA
# description: The windows of the pool, or that the node belongs to no pool.
# scope: document
default reason := "the node or its pool is not known"

reason := sprintf("node %s belongs to no pool", [input.pod.node]) if count(_pools) == 0

reason := sprintf("pods on node %s go at %s (%s)", [input.pod.node, windows, input.parameters.time_zone]) if {
	count(_pools) > 0
	windows := concat(", ", [sprintf("%s-%s", [pool.from, pool.to]) | some pool in _pools])
}

_pools := [pool | some pool in input.parameters.pools; startswith(input.pod.node, pool.prefix)] if input.pod.node

# Times of the same form compare like their texts.
_within(window) if {
	window.from < window.to
	window.from <= _time
	_time < window.to
}

_within(window) if {
	window.to < window.from
	window.from <= _time
}

_within(window) if {
	window.to < window.from
	_time < window.to
}

_time := time.format([input.now, input.parameters.time_zone, "15:04"])
