package rule.change_freeze_test

import data.rule.change_freeze

_weekend := [
	{"days": ["Friday"], "from": "14:00", "to": "24:00"},
	{"days": ["Saturday", "Sunday"], "from": "00:00", "to": "24:00"},
]

_nights := [{"days": ["Monday", "Tuesday", "Sunday"], "from": "22:00", "to": "06:00"}]

_year_end := [{"from": "2026-12-24", "to": "2027-01-01"}]

_at(instant, weekly, dates) := {
	"now": time.parse_rfc3339_ns(instant),
	"parameters": {"time_zone": "Europe/Berlin", "weekly": weekly, "dates": dates},
}

_withheld := {
	"the weekend": _at("2026-11-20T13:00:00Z", _weekend, []),
	"the night": _at("2026-11-24T04:59:59Z", _nights, []),
	"the first moment of a date": _at("2026-12-23T23:00:00Z", [], _year_end),
	"the last moment of a date": _at("2027-01-01T22:59:59Z", _weekend, _year_end),
	"every hour of every day": _at("2026-11-20T13:00:00Z", _always, []),
}

_always := [{
	"days": ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"],
	"from": "00:00",
	"to": "24:00",
}]

_deny(facts) := denied if denied := change_freeze.deny with input as facts

# The local time of the end, and the number of seconds until then.
_ends(facts, end, seconds) if {
	_deny(facts) == {{
		"message": sprintf("change freeze until %s (Europe/Berlin)", [end]),
		"retry_after_seconds": seconds,
	}}
}

test_goes_outside_of_the_windows if {
	_deny(_at("2026-11-20T12:59:59Z", _weekend, _year_end)) == set()
	_deny(_at("2026-11-22T23:00:00Z", _weekend, _year_end)) == set()
	_deny(_at("2026-11-24T05:00:00Z", _nights, [])) == set()
	_deny(_at("2026-11-25T21:30:00Z", _nights, [])) == set()
	_deny(_at("2027-01-01T23:00:00Z", _nights, _year_end)) == set()
	_deny(_at("2026-11-20T13:00:00Z", [], [])) == set()
}

test_waits[name] if {
	some name, facts in _withheld
	_deny(facts) != set()
}

test_the_message_has_the_end_of_the_freeze if {
	_ends(_at("2026-11-24T04:59:30Z", _nights, []), "2026-11-24 06:00", 30)
	_ends(_at("2026-12-31T23:00:00Z", [], _year_end), "2027-01-02 00:00", 24 * 3600)
}

test_windows_that_follow_on_one_another_are_one_freeze if {
	_ends(_at("2026-11-20T13:00:00Z", _weekend, []), "2026-11-23 00:00", 58 * 3600)

	# The 2nd of January is a Saturday.
	_ends(_at("2027-01-01T22:00:00Z", _weekend, _year_end), "2027-01-04 00:00", 49 * 3600)
}

test_part_of_a_second_is_waited_for if {
	_ends(_at("2026-11-24T04:59:30.5Z", _nights, []), "2026-11-24 06:00", 30)
}

# On the 29th of March 2026 the day has 23 hours in Berlin, on the 25th of October 25.
test_the_end_is_right_when_the_clocks_change if {
	_ends(_at("2026-03-28T23:00:00Z", _weekend, []), "2026-03-30 00:00", 23 * 3600)
	_ends(_at("2026-10-24T22:00:00Z", _weekend, []), "2026-10-26 00:00", 25 * 3600)
	night := [{"days": ["Saturday"], "from": "22:00", "to": "04:00"}]
	_ends(_at("2026-03-28T22:00:00Z", night, []), "2026-03-29 04:00", 4 * 3600)
}

# Clocks go forward at 02:00 on the 8th of March 2026 in New York, which is behind UTC.
test_the_end_is_right_just_after_the_clocks_change if {
	night := [{"days": ["Saturday"], "from": "22:00", "to": "04:00"}]
	parameters := {"time_zone": "America/New_York", "weekly": night, "dates": []}
	facts := {"now": time.parse_rfc3339_ns("2026-03-08T03:00:00Z"), "parameters": parameters}
	_deny(facts) == {{
		"message": "change freeze until 2026-03-08 04:00 (America/New_York)",
		"retry_after_seconds": 5 * 3600,
	}}
}

test_a_freeze_without_end_is_looked_at_again if {
	_deny(_withheld["every hour of every day"]) == {{
		"message": "change freeze with no end in sight",
		"retry_after_seconds": 3600,
	}}
}

test_without_facts_no_pod_passes if {
	unknown := {"it is not known whether there is a change freeze"}
	_deny(object.remove(_at("2026-11-24T12:00:00Z", [], []), ["now"])) == unknown
	_deny(object.remove(_at("2026-11-24T12:00:00Z", [], []), ["parameters"])) == unknown
}

test_a_window_that_cannot_be_read_frees_nothing if {
	every weekly in [
		[{"from": "13:00", "to": "24:00"}],
		[{"days": ["Tuesday"], "to": "06:00"}],
	] {
		_deny(_at("2026-11-24T12:30:00Z", weekly, [])) != set()
	}
	_deny(_at("2026-11-24T12:00:00Z", [], [{"from": "2026-11-24"}])) != set()
}
