package podops.rules.availability_test

import data.podops.rules.availability

_counts := {"selected": 12, "desired": 12, "available": 11, "reserved": 1}

_parameters := {
	"name": "budget",
	"stage": "PreCheck",
	"enforcement": "Enforce",
	"max_unavailable": {"percent": 25},
}

_request(available) := {
	"pod": {"labels": {"app": "web"}, "skip_rules": ["skipped"], "available": available},
	"operation": {"id": "a", "type": "update"},
}

_facts := {
	"stage": "PreCheck",
	"counts": _counts,
	"requests": {"up": _request(true), "down": _request(false)},
}

test_an_available_pod_needs_a_slot_and_an_unavailable_one_passes if {
	availability.decision(_facts, _parameters) == {
		"passed": {"down"},
		"needs_slot": {"up"},
		"withheld": {},
		"would": {},
		"capacity": {
			"slots": 1,
			"selected": 12,
			"desired": 12,
			"available": 10,
			"max_unavailable": 3,
			"min_available": -1,
		},
	}
}

test_passes_what_the_rule_does_not_apply_to if {
	decision := availability.decision(_facts, object.union(_parameters, {"conditions": ["delete"]}))
	decision.passed == {"up", "down"}
	decision.needs_slot == set()
}

test_capacity_is_returned_without_requests if {
	decision := availability.decision(object.union(object.remove(_facts, ["requests"]), {"requests": {}}), _parameters)
	decision.capacity.slots == 1
}

test_slots_are_what_both_bounds_leave if {
	every case in [
		{"bounds": {"max_unavailable": {"count": 3}}, "slots": 1},
		{"bounds": {"max_unavailable": {"count": 2}}, "slots": 0},
		{"bounds": {"max_unavailable": {"count": 1}}, "slots": 0},
		{"bounds": {"min_available": {"count": 8}}, "slots": 2},
		{"bounds": {"min_available": {"count": 0}}, "slots": 10},
		{"bounds": {"min_available": {"count": 12}}, "slots": 0},
		{"bounds": {"min_available": {"percent": 70}}, "slots": 1},
		{"bounds": {"max_unavailable": {"count": 8}, "min_available": {"count": 8}}, "slots": 2},
		{"bounds": {"max_unavailable": {"count": 3}, "min_available": {"count": 0}}, "slots": 1},
	] {
		availability.capacity(_counts, case.bounds).slots == case.slots
	}
}

test_missing_pods_count_as_unavailable if {
	capacity := availability.capacity(object.union(_counts, {"selected": 9, "available": 9}), _parameters)
	capacity.desired == 12
	capacity.slots == 0
}

test_surplus_pods_do_not_raise_the_limit if {
	capacity := availability.capacity(object.union(_counts, {"selected": 16, "available": 16}), _parameters)
	capacity.selected == 16
	capacity.max_unavailable == 3
}

# 12 pods are desired, and 3 of them may be unavailable: any pod above 9 may become unavailable.
test_pods_beyond_the_desired_number if {
	every case in [
		{"selected": 15, "available": 12, "reserved": 0, "slots": 3},
		{"selected": 15, "available": 12, "reserved": 3, "slots": 0},
		{"selected": 15, "available": 9, "reserved": 0, "slots": 0},
		{"selected": 15, "available": 8, "reserved": 0, "slots": 0},
		{"selected": 24, "available": 24, "reserved": 0, "slots": 15},
		{"selected": 24, "available": 24, "reserved": 10, "slots": 5},
	] {
		counts := object.union(object.remove(case, ["slots"]), {"desired": 12})
		availability.capacity(counts, _parameters).slots == case.slots
	}
}

test_all_slots_are_free_when_the_owners_desire_no_pods if {
	counts := {"selected": 12, "desired": 0, "available": 12, "reserved": 2}
	availability.capacity(counts, _parameters).slots == 10
	availability.capacity(counts, {"min_available": {"percent": 50}}).slots == 10
	availability.capacity(counts, {"min_available": {"count": 8}}).slots == 2
}

test_warn_and_dry_run_need_no_slot if {
	every mode in ["Warn", "DryRun"] {
		decision := availability.decision(_facts, object.union(_parameters, {"enforcement": mode}))
		decision.passed == {"up", "down"}
		decision.needs_slot == set()
		decision.would == {}
		full := availability.decision(
			object.union(_facts, {"counts": {"available": 9}}),
			object.union(_parameters, {"enforcement": mode}),
		)
		full.passed == {"up", "down"}
		full.would == {"up": "NoRoom"}
		full.capacity.slots == 0
	}
}

test_nothing_passes_when_a_fact_of_a_request_is_missing if {
	every parameters in [
		_parameters,
		object.union(_parameters, {"name": "skipped"}),
		object.union(_parameters, {"conditions": ["delete"]}),
		object.union(_parameters, {"filter": {"matchLabels": {"app": "db"}}}),
		object.union(_parameters, {"filter": {}, "enforcement": "Warn"}),
	] {
		every path in ["pod", "pod/labels", "pod/skip_rules", "operation", "operation/type"] {
			decision := availability.decision(_without_fact(path), parameters)
			decision.passed == set()
			decision.needs_slot == set()
		}
	}
}

test_nothing_passes_when_the_availability_is_unknown if {
	every mode in ["Enforce", "Warn"] {
		decision := availability.decision(
			_without_fact("pod/available"),
			object.union(_parameters, {"enforcement": mode}),
		)
		decision.passed == set()
		decision.needs_slot == set()
	}
}

_without_fact(path) := object.union(
	object.remove(_facts, ["requests"]),
	{"requests": {"k": json.remove(_request(false), [path])}},
)

test_undefined_without_what_the_whole_batch_needs if {
	both := object.union(_parameters, {"min_available": {"percent": 10}})
	every field in ["stage", "counts", "requests"] {
		not _decided(object.remove(_facts, [field]), both)
	}
	every field in ["selected", "desired", "available", "reserved"] {
		not _decided(json.remove(_facts, [sprintf("counts/%s", [field])]), both)
	}
	every parameter in ["name", "stage", "enforcement"] {
		not _decided(_facts, object.remove(both, [parameter]))
	}
	_decided(_facts, both)
}

test_undefined_without_a_bound_that_is_understood if {
	unbounded := object.remove(_parameters, ["max_unavailable"])
	not _decided(_facts, unbounded)
	every bound in [{}, {"pct": 5}, 5, "25%"] {
		not _decided(_facts, object.union(unbounded, {"max_unavailable": bound, "min_available": {"count": 1}}))
		not _decided(_facts, object.union(unbounded, {"min_available": bound, "max_unavailable": {"count": 1}}))
	}
	_decided(_facts, object.union(unbounded, {"min_available": {"count": 1}}))
}

_decided(facts, parameters) if is_object(availability.decision(facts, parameters))
