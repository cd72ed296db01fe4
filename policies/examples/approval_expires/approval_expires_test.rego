package rule.approval_expires_test

import data.rule.approval_expires

_until(text) := {
	"now": time.parse_rfc3339_ns("2026-01-31T12:00:00Z"),
	"parameters": {"annotation": "approved-until", "hours": 24},
	"pod": {"name": "web-0", "annotations": {"approved-until": text}},
}

_unapproved := object.union(
	object.remove(_until(""), ["pod"]),
	{"pod": {"name": "web-0", "annotations": {}}},
)

_withheld := {
	"an approval that has ended": _until("2026-01-31T12:00:00Z"),
	"an approval that lasts too long": _until("2026-02-01T12:00:01Z"),
	"a day": _until("2026-01-31"),
	"an impossible time": _until("2026-13-31T12:00:00Z"),
	"an empty approval": _until(""),
	"no approval": _unapproved,
}

test_an_approved_pod_goes if {
	approval_expires.allow with input as _until("2026-01-31T12:00:01Z")
	approval_expires.allow with input as _until("2026-02-01T12:00:00Z")
	approval_expires.allow with input as _until("2026-01-31T14:00:00+01:00")
}

test_other_pods_wait[name] if {
	some name, facts in _withheld
	not approval_expires.allow with input as facts
}

test_the_reason_states_what_the_approval_lacks if {
	reasons := {name: reason | some name, facts in _withheld; reason := approval_expires.reason with input as facts}
	reasons == {
		"an approval that has ended": "the approval ended at 2026-01-31T12:00:00Z",
		"an approval that lasts too long": "the approval until 2026-02-01T12:00:01Z is for more than 24 hours",
		"a day": "the approval '2026-01-31' is no time such as 2026-01-31T18:00:00Z",
		"an impossible time": "the approval '2026-13-31T12:00:00Z' is no time such as 2026-01-31T18:00:00Z",
		"an empty approval": "the approval '' is no time such as 2026-01-31T18:00:00Z",
		"no approval": "pod web-0 has no annotation approved-until with a time",
	}
}

test_without_facts_no_pod_passes if {
	facts := object.remove(_until("2026-01-31T13:00:00Z"), ["now"])
	not approval_expires.allow with input as facts
	approval_expires.reason == "the approval of the pod is not known" with input as facts
}
