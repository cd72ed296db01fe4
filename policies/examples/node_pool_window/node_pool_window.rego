# METADATA
# title: Window per node pool
# description: |
#   A pod passes in the windows of its node pool, every day. A label of the node, parameters.label, is
#   the pool, and parameters.windows has the windows of pools. Windows are local times of
#   parameters.time_zone; a window whose "to" is before its "from" ends on the next day. A pod of
#   no pool with a window waits; a pod that is bound to no node passes, since it runs nowhere.
package rule.node_pool_window

# METADATA
# description: True in a window of the pool that the node belongs to.
# scope: document
allow if {
	some window in _windows
	_within(window)
}

allow if input.node.name == ""

# METADATA
# description: The windows of the pool, or that the node belongs to no pool.
# scope: document
default reason := "the node or its pool is not known"

reason := sprintf("node %s belongs to no pool with a window", [input.node.name]) if count(_windows) == 0

reason := sprintf("pods of the pool %s go at %s (%s)", [_pool, windows, input.parameters.time_zone]) if {
	count(_windows) > 0
	windows := concat(", ", [sprintf("%s-%s", [window.from, window.to]) | some window in _windows])
}

_pool := input.node.labels[input.parameters.label]

_windows := [window | some window in input.parameters.windows; window.pool == _pool]

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
