package podops.lib.selector_test

import data.podops.lib.selector

_labels := {"app": "web", "zone": "a"}

_expression(operator) := {"matchExpressions": [{"key": "zone", "operator": operator}]}

_listed(operator, key, values) := {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}

test_matches_what_kubernetes_matches if {
	every case in [
		{"selector": {}, "want": true},
		{"selector": {"matchLabels": {}}, "want": true},
		{"selector": {"matchLabels": {"app": "web"}}, "want": true},
		{"selector": {"matchLabels": {"app": "web", "zone": "a"}}, "want": true},
		{"selector": {"matchLabels": {"app": "db"}}, "want": false},
		{"selector": {"matchLabels": {"app": "web", "tier": "x"}}, "want": false},
		{"selector": _listed("In", "zone", ["a", "b"]), "want": true},
		{"selector": _listed("In", "zone", ["b"]), "want": false},
		{"selector": _listed("In", "tier", ["b"]), "want": false},
		{"selector": _listed("NotIn", "zone", ["a", "b"]), "want": false},
		{"selector": _listed("NotIn", "zone", ["b"]), "want": true},
		{"selector": _listed("NotIn", "tier", ["b"]), "want": true},
		{"selector": _expression("Exists"), "want": true},
		{"selector": _expression("DoesNotExist"), "want": false},
		{"selector": {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}, "want": false},
		{"selector": {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, "want": true},
	] {
		selector.matches(_labels, case.selector) == case.want
	}
}

test_all_requirements_must_be_met if {
	both := object.union(_expression("Exists"), {"matchLabels": {"app": "web"}})
	selector.matches(_labels, both) == true
	selector.matches({"app": "web"}, both) == false
	selector.matches({"zone": "a"}, both) == false
}

test_an_empty_value_is_present if {
	selector.matches({"zone": ""}, _expression("Exists")) == true
	selector.matches({"zone": ""}, _listed("In", "zone", [""])) == true
	selector.matches({}, _listed("In", "zone", [""])) == false
}

test_no_labels_are_no_answer if {
	_without := {"pod": {}}
	not _answered(_without.pod, {})
	not _answered(_without.pod, _expression("DoesNotExist"))
	not _answered({"labels": null}, {})
	_answered({"labels": {}}, {})
}

test_a_malformed_requirement_is_no_answer if {
	every expression in [
		{"key": "zone", "operator": "Like"},
		{"key": "zone"},
		{"key": "zone", "operator": "In"},
		{"operator": "Exists"},
		{"operator": "NotIn", "values": ["a"]},
		{},
	] {
		not _answered({"labels": _labels}, {"matchExpressions": [expression]})
	}
}

_answered(pod, wanted) if is_boolean(selector.matches(pod.labels, wanted))
