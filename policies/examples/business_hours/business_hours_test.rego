package rule.business_hours_test

import data.rule.business_hours

# The 2nd of March 2026 is a Monday; Berlin is an hour ahead of UTC.
_at(instant) := {
	"now": time.parse_rfc3339_ns(instant),
	"parameters": {
		"time_zone": "Europe/Berlin",
		"days": ["Monday", "Tuesday"],
		"from": "09:00",
		"to": "16:00",
	},
	"pod": {"name": "web-0", "available": true},
}

_withheld := {
	"before work": _at("2026-03-02T07:59:59Z"),
	"after work": _at("2026-03-03T15:00:00Z"),
	"another day": _at("2026-03-04T09:00:00Z"),
	"the day before, in local time": _at("2026-03-01T22:59:00Z"),
	"a window that ends before it begins": object.union(_at("2026-03-02T09:00:00Z"), {"parameters": {"to": "08:00"}}),
}

test_a_pod_goes_during_work if {
	business_hours.allow with input as _at("2026-03-02T08:00:00Z")
	business_hours.allow with input as _at("2026-03-03T14:59:59Z")
}

test_daylight_saving_counts if {
	business_hours.allow with input as _at("2026-06-01T07:00:00Z")
	not business_hours.allow with input as _at("2026-06-01T14:00:00Z")
}

test_a_pod_waits_otherwise[name] if {
	some name, facts in _withheld
	not business_hours.allow with input as facts
}

test_a_broken_pod_goes_at_any_time if {
	business_hours.allow with input as object.union(_withheld["another day"], {"pod": {"available": false}})
}

test_the_reason_has_the_hours if {
	reason := "pods go at 09:00-16:00 on Monday, Tuesday (Europe/Berlin)"
	business_hours.reason == reason with input as _withheld["another day"]
}

test_without_facts_no_pod_passes if {
	facts := object.remove(_at("2026-03-02T08:00:00Z"), ["parameters"])
	not business_hours.allow with input as facts
	business_hours.reason == "the business hours are not known" with input as facts
}
