package rule.working_days_test

import data.rule.working_days

_at(text) := {"now": time.parse_rfc3339_ns(text), "parameters": {"time_zone": "Europe/Berlin"}}

_denied(input_document, days) := denied if {
	denied := working_days.deny with input as input_document with data.config.holidays.days as days
}

test_a_weekday_is_a_working_day if _denied(_at("2026-12-28T12:00:00Z"), ["2026-12-25"]) == set()

test_a_holiday_is_none if {
	_denied(_at("2026-12-25T12:00:00Z"), ["2026-12-25"]) == {"2026-12-25 is no working day"}
}

test_a_sunday_is_none if {
	_denied(_at("2026-12-26T23:30:00Z"), []) == {"2026-12-27 is no working day"}
}

test_an_unknown_time_is_none if {
	_denied({"parameters": {"time_zone": "Europe/Berlin"}}, []) == {"it is not known whether this is a working day"}
}
