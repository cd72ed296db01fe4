package lib.calendar_test

import data.lib.calendar

_at(text) := time.parse_rfc3339_ns(text)

test_the_day_is_that_of_the_time_zone if {
	calendar.day(_at("2026-12-24T23:30:00Z"), "Europe/Berlin") == "2026-12-25"
	calendar.day(_at("2026-12-24T23:30:00Z"), "UTC") == "2026-12-24"
}

test_saturday_and_sunday_are_no_weekdays if {
	calendar.is_weekday(_at("2026-12-25T12:00:00Z"), "UTC")
	not calendar.is_weekday(_at("2026-12-26T12:00:00Z"), "UTC")
	not calendar.is_weekday(_at("2026-12-27T12:00:00Z"), "UTC")
}
