package rule.rate_limit_test

import data.rule.rate_limit

_minute := 60000000000

_now := 1000 * _minute

# At most 2 permits in 10 minutes; minutes are the ages of the earlier permits.
_given(minutes) := {
	"now": _now,
	"parameters": {"permits": 2, "minutes": 10},
	"permits": [{"pod": sprintf("web-%d", [i]), "at": _now - (ago * _minute)} | some i, ago in minutes],
}

_withheld := {
	"as many as allowed": _given([9, 1]),
	"more than allowed": _given([8, 7, 0]),
	"a clock that runs ahead": _given([-1, -2]),
}

_denies(facts, seconds) if {
	rate_limit.deny == {{
		"message": "2 permits in 10 minutes are given",
		"retry_after_seconds": seconds,
	}} with input as facts
}

test_goes_while_there_is_room if {
	rate_limit.deny == set() with input as _given([])
	rate_limit.deny == set() with input as _given([9])
	rate_limit.deny == set() with input as _given([30, 20, 10, 1])
}

test_waits_until_the_window_has_room if {
	_denies(_given([9, 1]), 60)
	_denies(_given([30, 9, 1]), 60)
	_denies(_given([8, 7, 0]), 180)
}

test_waits_a_whole_second_for_a_part_of_one if {
	_denies(object.union(_given([]), {"permits": [{"at": (_now - (10 * _minute)) + 1}, {"at": _now}]}), 1)
}

test_waits[name] if {
	some name, facts in _withheld
	rate_limit.deny != set() with input as facts
}

test_without_facts_no_pod_passes if {
	unknown := {"the permits given last are not known"}
	every fact in ["now", "parameters", "permits"] {
		rate_limit.deny == unknown with input as object.remove(_given([]), [fact])
	}
	facts := object.union(object.remove(_given([]), ["parameters"]), {"parameters": {"permits": 2}})
	rate_limit.deny == unknown with input as facts
}

test_a_permit_of_unknown_time_may_be_recent if {
	rate_limit.deny == {"the permits given last are not known"} with input as object.union(_given([]), {"permits": [{}]})
}
