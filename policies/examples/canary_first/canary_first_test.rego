package rule.canary_first_test

import data.rule.canary_first

_minute := 60000000000

_now := 1000 * _minute

# A pod that was created and became available the given number of minutes ago.
_pod(name, revision, minutes) := {
	"name": name,
	"labels": {"rev": revision},
	"owner": {"uid": "u1"},
	"created": _now - (minutes.created * _minute),
	"available": true,
	"available_since": _now - (minutes.available * _minute),
	"permitted": false,
}

_old(name) := _pod(name, "1", {"created": 900, "available": 899})

_canary(minutes) := _pod("web-9", "2", {"created": 30, "available": minutes})

_away := {"available": false, "available_since": 0, "permitted": true}

_broken := {"available": false, "available_since": 0}

_foreign := {"owner": {"uid": "u2"}}

_facts(pods) := {
	"now": _now,
	"parameters": {"minutes": 10, "revision_labels": ["pod-template-hash", "rev"]},
	"counts": {"selected": count(pods) + 1, "desired": count(pods) + 1},
	"pod": _old("web-0"),
	"pods": pods,
}

_bare := object.union(object.remove(_old("web-1"), ["labels"]), {"labels": {}})

_withheld := {
	"a young canary": _facts([_old("web-1"), _canary(4)]),
	"a canary that is not available": _facts([_old("web-1"), object.union(_canary(0), _broken)]),
	"another pod goes first": _facts([object.union(_old("web-1"), _away)]),
	"the canary is not created yet": object.union(_facts([_old("web-1")]), {"counts": {"desired": 3}}),
	"an older revision has proved itself": _facts([_canary(20), object.union(
		_pod("web-8", "3", {"created": 5, "available": 0}),
		_broken,
	)]),
	"a canary updated in place": _facts([object.union(_canary(4), {"created": _old("web-0").created})]),
	"no owner": object.union(_facts([]), {"pod": {"owner": {"uid": ""}}}),
	"a pod without revision": _facts([_bare]),
}

_deny(facts) := denied if denied := canary_first.deny with input as facts

test_one_pod_goes_first if {
	_deny(_facts([_old("web-1"), _old("web-2")])) == set()
	_deny(_facts([])) == set()
}

test_the_others_go_after_the_canary_has_proved_itself if {
	_deny(_facts([_old("web-1"), _canary(10)])) == set()
	_deny(_facts([object.union(_old("web-1"), _away), _canary(11)])) == set()
}

test_a_canary_may_have_been_updated_in_place if {
	_deny(_facts([object.union(_canary(10), {"created": _old("web-0").created})])) == set()
}

# The pod of the request has the newest revision, the others have the one before.
test_leftovers_of_an_older_revision_are_no_canary if {
	facts := object.union(_facts([_old("web-1")]), {"pod": _pod("web-0", "2", {"created": 30, "available": 29})})
	_deny(facts) == set()
	others := {"pods": [object.union(_old("web-1"), _away)]}
	_deny(object.union(facts, others)) == {"web-1 goes first, as the canary"}
}

test_other_workloads_do_not_matter if {
	_deny(_facts([object.union(_canary(4), _foreign)])) == set()
	_deny(_facts([object.union(_old("web-1"), object.union(_foreign, _away))])) == set()
}

test_waits[name] if {
	some name, facts in _withheld
	_deny(facts) != set()
}

test_the_reason_has_the_end_of_the_canary_time if {
	_deny(_withheld["a young canary"]) == {{
		"message": "canary web-9 must be available for 10 minutes",
		"retry_after_seconds": 360,
	}}
}

test_the_reason_has_other_conditions if {
	_deny(_withheld["a canary that is not available"]) == {"canary web-9 is not available"}
	_deny(_withheld["an older revision has proved itself"]) == {"canary web-8 is not available"}
	_deny(_withheld["another pod goes first"]) == {"web-1 goes first, as the canary"}
	_deny(_withheld["the canary is not created yet"]) == {"the canary is not there yet"}
	_deny(_withheld["no owner"]) == {"pod web-0 has no owner, so there is no canary for it"}
	_deny(_withheld["a pod without revision"]) == {"a pod of the owner has no revision label, or a fact is missing"}
}

test_without_facts_no_pod_passes if {
	facts := _facts([_old("web-1")])
	every fact in ["parameters", "counts", "pod", "pods"] {
		_deny(object.remove(facts, [fact])) != set()
	}
}
