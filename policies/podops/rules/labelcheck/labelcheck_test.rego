package podops.rules.labelcheck_test

import data.podops.rules.labelcheck

_parameters := {
	"name": "ready",
	"stage": "PreCheck",
	"enforcement": "Enforce",
	"requires": {"matchLabels": {"ready": "true"}},
}

_request(labels) := {
	"pod": {"labels": labels, "skip_rules": [], "available": true},
	"operation": {"id": "a", "type": "update"},
}

_requests := {
	"fit": _request({"ready": "true"}),
	"unfit": _request({"ready": "false"}),
	"bare": _request({}),
}

_decision(requests, parameters) := labelcheck.decision({"stage": "PreCheck", "requests": requests}, parameters)

test_passes_pods_whose_labels_match if {
	_decision(_requests, _parameters) == {
		"passed": {"fit"},
		"needs_slot": set(),
		"withheld": {"unfit": "LabelMismatch", "bare": "LabelMismatch"},
		"would": {},
	}
}

test_passes_what_the_rule_does_not_apply_to if {
	decision := _decision(_requests, object.union(_parameters, {"conditions": ["delete"]}))
	decision.passed == {"fit", "unfit", "bare"}
	decision.withheld == {}
}

test_warn_passes_and_returns_what_would_wait if {
	_decision(_requests, object.union(_parameters, {"enforcement": "Warn"})) == {
		"passed": {"fit", "unfit", "bare"},
		"needs_slot": set(),
		"withheld": {},
		"would": {"unfit": "LabelMismatch", "bare": "LabelMismatch"},
	}
}

test_decides_about_nothing if {
	_decision({}, _parameters) == {"passed": set(), "needs_slot": set(), "withheld": {}, "would": {}}
}

# The facts that each request needs to pass, whether or not the rule applies to it.
test_nothing_passes_when_a_fact_is_missing if {
	every parameters in [
		_parameters,
		object.union(_parameters, {"name": "skipped"}),
		object.union(_parameters, {"conditions": ["delete"]}),
		object.union(_parameters, {"filter": {"matchLabels": {"app": "db"}}}),
		object.union(_parameters, {"enforcement": "Warn"}),
		object.union(_parameters, {"requires": {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}}),
	] {
		every path in ["pod", "pod/labels", "pod/skip_rules", "operation", "operation/type"] {
			request := object.union(_request({"ready": "true"}), {"pod": {"skip_rules": ["skipped"]}})
			decision := _decision({"k": json.remove(request, [path])}, parameters)
			decision.passed == set()
			decision.needs_slot == set()
		}
	}
}

test_one_broken_request_leaves_the_others_alone if {
	decision := _decision(object.union(_requests, {"broken": {}}), _parameters)
	decision.passed == {"fit"}
	object.keys(decision.withheld) == {"unfit", "bare"}
}

test_undefined_without_what_the_whole_batch_needs if {
	facts := {"stage": "PreCheck", "requests": _requests}
	every field in ["stage", "requests"] {
		not _decided(object.remove(facts, [field]), _parameters)
	}
	every parameter in ["name", "stage", "enforcement"] {
		not _decided(facts, object.remove(_parameters, [parameter]))
	}
	_decided(facts, _parameters)
}

test_nothing_passes_without_a_requirement if {
	_decision(_requests, object.remove(_parameters, ["requires"])).passed == set()
}

_decided(facts, parameters) if is_object(labelcheck.decision(facts, parameters))
