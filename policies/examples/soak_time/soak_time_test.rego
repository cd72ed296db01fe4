package rule.soak_time_test

import data.rule.soak_time

_minute := 60000000000

_now := 1000 * _minute

_pod(name, minutes) := {
	"name": name,
	"owner": {"uid": "u1"},
	"available": true,
	"available_since": _now - (minutes * _minute),
}

_broken(name) := object.union(_pod(name, 0), {"available": false, "available_since": 0})

_foreign(name) := object.union(_broken(name), {"owner": {"uid": "u2"}})

_waiting(pods) := {"now": _now, "parameters": {"minutes": 10}, "pod": _pod("web-0", 500), "pods": pods}

_withheld := {
	"a young pod": _waiting([_pod("web-1", 500), _pod("web-2", 9)]),
	"two young pods": _waiting([_pod("web-1", 3), _pod("web-2", 8)]),
	"a pod that is not available": _waiting([_pod("web-1", 500), _broken("web-2")]),
}

test_a_pod_goes_after_the_soak_time if {
	soak_time.deny == set() with input as _waiting([_pod("web-1", 500), _pod("web-2", 10)])
	soak_time.deny == set() with input as _waiting([])
}

test_a_pod_waits_before[name] if {
	some name, facts in _withheld
	soak_time.deny != set() with input as facts
}

test_the_youngest_pod_counts if {
	soak_time.deny == {{
		"message": "pod web-1 must be available for 10 minutes",
		"retry_after_seconds": 420,
	}} with input as _withheld["two young pods"]
}

test_the_message_names_the_unavailable_pod if {
	soak_time.deny == {"pod web-2 must become available"} with input as _withheld["a pod that is not available"]
}

test_pods_of_other_owners_do_not_count if {
	soak_time.deny == set() with input as _waiting([_foreign("db-0")])
}

test_a_broken_pod_goes_at_once if {
	facts := object.union(_waiting([_pod("web-1", 1)]), {"pod": _broken("web-0")})
	soak_time.deny == set() with input as facts
}

test_without_facts_no_pod_passes if {
	unknown := {"it is not known how long the other pods have been available"}
	every fact in ["now", "parameters", "pods"] {
		facts := object.remove(_waiting([_pod("web-1", 500)]), [fact])
		soak_time.deny == unknown with input as facts
	}
}
