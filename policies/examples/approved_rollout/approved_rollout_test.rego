package rule.approved_rollout_test

import data.rule.approved_rollout

_input := {
	"parameters": {"label": "approved"},
	"operation": {"id": "pod-delete", "type": "delete", "cause": "Rollout", "since": 1},
	"pod": {"name": "web-0", "labels": {"app": "web"}},
}

_withheld := {
	"a rollout": _input,
	"a rollout that is refused": object.union(_input, {"pod": {"labels": {"approved": "no"}}}),
}

test_a_rollout_waits_for_the_label[name] if {
	some name, facts in _withheld
	not approved_rollout.allow with input as facts
}

test_the_reason_names_the_label if {
	approved_rollout.reason == "the rollout waits for the label approved=true" with input as _input
}

test_an_approved_pod_goes if {
	approved_rollout.allow with input as object.union(_input, {"pod": {"labels": {"approved": "true"}}})
}

test_a_scale_in_goes if {
	every cause in ["ScaleIn", ""] {
		approved_rollout.allow with input as object.union(_input, {"operation": {"cause": cause}})
	}
}

test_an_unknown_cause_is_no_approval if {
	not approved_rollout.allow with input as json.remove(_input, ["operation/cause"])
}
