package rule.minimum_age_test

import data.rule.minimum_age

_minute := 60000000000

_now := 1000 * _minute

_aged(nanoseconds) := {
	"now": _now,
	"parameters": {"minutes": 15},
	"pod": {"name": "web-0", "created": _now - nanoseconds},
}

_withheld := {
	"a young pod": _aged(14 * _minute),
	"a pod that lacks a moment": _aged((15 * _minute) - 1),
	"a clock that runs ahead": _aged(-1 * _minute),
}

test_an_old_pod_goes if {
	minimum_age.deny == set() with input as _aged(15 * _minute)
	minimum_age.deny == set() with input as _aged(100 * _minute)
}

test_a_young_pod_waits[name] if {
	some name, facts in _withheld
	minimum_age.deny != set() with input as facts
}

test_the_answer_has_the_time if {
	minimum_age.deny == {{
		"message": "pod web-0 must be 15 minutes old",
		"retry_after_seconds": 60,
	}} with input as _withheld["a young pod"]
}

test_part_of_a_second_is_waited_for if {
	some answer in minimum_age.deny with input as _withheld["a pod that lacks a moment"]
	answer.retry_after_seconds == 1
}

test_without_facts_no_pod_passes if {
	every fact in ["now", "parameters", "pod"] {
		facts := object.remove(_aged(100 * _minute), [fact])
		minimum_age.deny == {"the age of the pod is not known"} with input as facts
	}
}
