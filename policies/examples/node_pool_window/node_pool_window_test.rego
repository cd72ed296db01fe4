package rule.node_pool_window_test

import data.rule.node_pool_window

# Berlin is two hours ahead of UTC in July.
_at(clock, pool) := {
	"now": time.parse_rfc3339_ns(sprintf("2026-07-01T%s:00Z", [clock])),
	"parameters": {"time_zone": "Europe/Berlin", "label": "example.com/pool", "windows": [
		{"pool": "gpu", "from": "22:00", "to": "04:00"},
		{"pool": "web", "from": "09:00", "to": "17:00"},
		{"pool": "both", "from": "09:00", "to": "17:00"},
		{"pool": "both", "from": "18:00", "to": "24:00"},
	]},
	"node": {"name": "node-1", "labels": {"example.com/pool": pool}},
}

_withheld := {
	"before the window": _at("06:59", "web"),
	"at its end": _at("15:00", "web"),
	"before a night": _at("19:59", "gpu"),
	"after a night": _at("02:00", "gpu"),
	"no pool": _at("10:00", "db"),
	"no label": object.union(object.remove(_at("10:00", "web"), ["node"]), {"node": {"name": "node-1", "labels": {}}}),
	"an empty window": object.union(_at("08:00", "x"), {"parameters": {"windows": [
		{"pool": "x", "from": "10:00", "to": "10:00"},
	]}}),
}

test_a_pod_goes_in_the_window_of_its_pool if {
	node_pool_window.allow with input as _at("07:00", "web")
	node_pool_window.allow with input as _at("14:59", "web")
	node_pool_window.allow with input as _at("20:00", "gpu")
	node_pool_window.allow with input as _at("01:59", "gpu")
}

test_a_pool_may_have_two_windows if {
	node_pool_window.allow with input as _at("08:00", "both")
	node_pool_window.allow with input as _at("21:59", "both")
	reason := "pods of the pool both go at 09:00-17:00, 18:00-24:00 (Europe/Berlin)"
	node_pool_window.reason == reason with input as _at("15:30", "both")
}

test_a_pod_waits_outside[name] if {
	some name, facts in _withheld
	not node_pool_window.allow with input as facts
}

test_the_reason_names_the_window if {
	reason := "pods of the pool gpu go at 22:00-04:00 (Europe/Berlin)"
	node_pool_window.reason == reason with input as _withheld["before a night"]
	node_pool_window.reason == "node node-1 belongs to no pool with a window" with input as _withheld["no pool"]
	node_pool_window.reason == "node node-1 belongs to no pool with a window" with input as _withheld["no label"]
}

test_a_pod_on_no_node_goes if {
	node_pool_window.allow with input as object.union(_at("10:00", ""), {"node": {"name": ""}})
}

test_without_facts_no_pod_passes if {
	every fact in ["now", "parameters", "node"] {
		not node_pool_window.allow with input as object.remove(_at("08:00", "web"), [fact])
	}
	facts := object.remove(_at("08:00", "web"), ["node"])
	node_pool_window.reason == "the node or its pool is not known" with input as facts
}
