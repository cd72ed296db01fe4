package rule.ticket_required_test

import data.rule.ticket_required

_with(annotations) := {
	"parameters": {"annotation": "ticket", "pattern": "OPS-[0-9]+|CHG[0-9]{4}"},
	"pod": {"name": "web-0", "annotations": annotations},
}

_withheld := {
	"a ticket of another project": _with({"ticket": "WEB-1"}),
	"a text around the ticket": _with({"ticket": "see OPS-1"}),
	"a text after the ticket": _with({"ticket": "OPS-1, OPS-2"}),
	"two lines": _with({"ticket": "OPS-1\nOPS-2"}),
	"an empty ticket": _with({"ticket": ""}),
	"no ticket": _with({}),
}

test_a_pod_with_a_ticket_goes if {
	ticket_required.allow with input as _with({"ticket": "OPS-1234"})
	ticket_required.allow with input as _with({"ticket": "CHG0815"})
}

test_other_pods_wait[name] if {
	some name, facts in _withheld
	not ticket_required.allow with input as facts
}

test_the_reason_names_the_ticket if {
	reason := "the ticket 'WEB-1' does not match OPS-[0-9]+|CHG[0-9]{4}"
	ticket_required.reason == reason with input as _withheld["a ticket of another project"]
	ticket_required.reason == "pod web-0 has no ticket in its annotation ticket" with input as _withheld["no ticket"]
}

test_without_facts_no_pod_passes if {
	facts := object.remove(_with({"ticket": "OPS-1"}), ["parameters"])
	not ticket_required.allow with input as facts
	ticket_required.reason == "the ticket of the pod is not known" with input as facts
}
