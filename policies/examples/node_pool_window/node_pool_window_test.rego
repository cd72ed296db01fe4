package rule.node_pool_window_test

import data.rule.node_pool_window

# Berlin is two hours ahead of UTC in July.
_at(clock, node) := {
	"now": time.parse_rfc3339_ns(sprintf("2026-07-01T%s:00Z", [clock])),
	"parameters": {"time_zone": "Europe/Berlin", "pools": [
		{"prefix": "gpu-", "from": "22:00", "to": "04:00"},
		{"prefix": "web-", "from": "09:00", "to": "17:00"},
		{"prefix": "web-b", "from": "18:00", "to": "24:00"},
	]},
	"pod": {"name": "web-0", "node": node},
}

_withheld := {
	"before the window": _at("06:59", "web-a1"),
	"at its end": _at("15:00", "web-a1"),
	"before a night": _at("19:59", "gpu-1"),
	"after a night": _at("02:00", "gpu-1"),
	"no pool": _at("10:00", "db-1"),
	"an empty window": object.union(_at("08:00", "x-1"), {"parameters": {"pools": [
		{"prefix": "x-", "from": "10:00", "to": "10:00"},
	]}}),
}

test_a_pod_goes_in_the_window_of_its_pool if {
	node_pool_window.allow with input as _at("07:00", "web-a1")
	node_pool_window.allow with input as _at("14:59", "web-a1")
	node_pool_window.allow with input as _at("20:00", "gpu-1")
	node_pool_window.allow with input as _at("01:59", "gpu-1")
}

test_a_node_may_be_of_two_pools if {
	node_pool_window.allow with input as _at("08:00", "web-b1")
	node_pool_window.allow with input as _at("21:59", "web-b1")
	reason := "pods on node web-b1 go at 09:00-17:00, 18:00-24:00 (Europe/Berlin)"
	node_pool_window.reason == reason with input as _at("15:30", "web-b1")
}

test_a_pod_waits_outside[name] if {
	some name, facts in _withheld
	not node_pool_window.allow with input as facts
}

test_the_reason_names_the_window if {
	reason := "pods on node gpu-1 go at 22:00-04:00 (Europe/Berlin)"
	node_pool_window.reason == reason with input as _withheld["before a night"]
	node_pool_window.reason == "node db-1 belongs to no pool" with input as _withheld["no pool"]
}

test_a_pod_on_no_node_goes if {
	node_pool_window.allow with input as _at("10:00", "")
}

test_without_facts_no_pod_passes if {
	every fact in ["now", "parameters", "pod"] {
		not node_pool_window.allow with input as object.remove(_at("08:00", "web-a1"), [fact])
	}
	facts := object.remove(_at("08:00", "web-a1"), ["pod"])
	node_pool_window.reason == "the node or its pool is not known" with input as facts
}
