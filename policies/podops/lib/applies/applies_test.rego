package podops.lib.applies_test

import data.podops.lib.applies

_request := {
	"pod": {"name": "web-0", "labels": {"app": "web"}, "skip_rules": ["other"], "available": true},
	"operation": {"id": "a", "type": "update"},
}

_parameters := {
	"name": "mine",
	"stage": "PreCheck",
	"conditions": ["update", "delete"],
	"filter": {"matchLabels": {"app": "web"}},
}

_split(request, parameters) := applies.split({"stage": "PreCheck", "requests": {"k": request}}, parameters)

_exempt := {"exempt": {"k"}, "subject": set()}

_subject := {"exempt": set(), "subject": {"k"}}

_unanswered := {"exempt": set(), "subject": set()}

test_applies_when_nothing_exempts if {
	_split(_request, _parameters) == _subject
}

test_applies_to_all_without_conditions_and_filter if {
	_split(_request, {"name": "mine", "stage": "PreCheck"}) == _subject
	_split(_request, {"name": "mine", "stage": "PreCheck", "conditions": []}) == _subject
	_split(_request, {"name": "mine", "stage": "PreCheck", "filter": {}}) == _subject
}

test_exempts_a_pod_that_skips_the_rule if {
	_split(_request, object.union(_parameters, {"name": "other"})) == _exempt
}

test_exempts_operations_of_other_types if {
	_split(_request, object.union(_parameters, {"conditions": ["delete"]})) == _exempt
}

test_exempts_pods_that_the_filter_does_not_match if {
	_split(_request, object.union(_parameters, {"filter": {"matchLabels": {"app": "db"}}})) == _exempt
}

test_a_filter_that_cannot_be_read_filters_nothing_out if {
	unreadable := {"matchExpressions": [{"key": "app", "operator": "Like"}]}
	_split(_request, object.union(_parameters, {"filter": unreadable})) == _subject
}

# Each of these parameters would exempt the request if all its facts were present.
test_a_missing_fact_is_no_answer if {
	every parameters in [
		_parameters,
		object.union(_parameters, {"name": "other"}),
		object.union(_parameters, {"conditions": ["delete"]}),
		object.union(_parameters, {"filter": {"matchLabels": {"app": "db"}}}),
	] {
		every path in ["pod", "pod/labels", "pod/skip_rules", "operation", "operation/type"] {
			_split(json.remove(_request, [path]), parameters) == _unanswered
		}
	}
}

test_a_fact_of_a_wrong_shape_is_no_answer if {
	every facts in [
		{"pod": {"skip_rules": "mine"}},
		{"pod": {"labels": "web"}},
		{"pod": {"labels": null}},
		{"operation": {"type": null}},
	] {
		_split(object.union(_request, facts), object.remove(_parameters, ["conditions"])) == _unanswered
	}
}

test_undefined_in_another_stage_and_with_malformed_parameters if {
	not _is_split({"stage": "PostCheck", "requests": {}}, _parameters)
	not _is_split({"requests": {}}, _parameters)
	not _is_split({"stage": "PreCheck"}, _parameters)
	not _is_split({"stage": "PreCheck", "requests": {}}, {"name": "mine"})
	not _is_split({"stage": "PreCheck", "requests": {}}, {"stage": "PreCheck"})
	not _is_split({"stage": "PreCheck", "requests": {}}, object.union(_parameters, {"conditions": "update"}))
	_is_split({"stage": "PreCheck", "requests": {}}, _parameters)
}

_is_split(facts, parameters) if is_object(applies.split(facts, parameters))
