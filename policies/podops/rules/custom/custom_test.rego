package podops.rules.custom_test

import data.podops.rules.custom

_pod := {
	"name": "web-0",
	"namespace": "shop",
	"uid": "1",
	"labels": {"app": "web"},
	"annotations": {},
	"owner": {"kind": "", "name": "", "uid": ""},
	"revision": {"current": "", "state": "Unknown"},
	"node": "",
	"created": 1,
	"ready": true,
	"available": true,
	"available_since": 2,
	"permitted": false,
	"skip_rules": ["skipped"],
}

_facts := {
	"stage": "PreCheck",
	"now": 3,
	"operation": {
		"id": "a",
		"type": "update",
		"cause": "",
		"since": 2,
		"request": {"method": "", "actor": "", "user": "", "groups": [], "groups_truncated": false},
	},
	"parameters": {},
	"pod": _pod,
	"pods": [],
	"namespace": {"name": "shop", "labels": {}},
	"counts": {"selected": 1, "desired": 1, "available": 1, "reserved": 0},
	"permits": [],
	"rule": _parameters,
}

_parameters := {"name": "mine", "stage": "PreCheck", "enforcement": "Enforce"}

_nothing := {"messages": [], "details": [], "retry_after_seconds": []}

_passed := {"passed": {"request"}, "needs_slot": set(), "withheld": {}, "would": {}, "explanation": _nothing}

_withheld(code, explanation) := {
	"passed": set(),
	"needs_slot": set(),
	"withheld": {"request": code},
	"would": {},
	"explanation": object.union(_nothing, explanation),
}

test_allow_passes_when_it_is_true if {
	custom.decision(_facts, _parameters, "allow") == _passed with data.rule as {"allow": true, "reason": 1}
}

test_allow_withholds_when_it_is_false_or_undefined if {
	every module in [{"allow": false}, {}] {
		custom.decision(_facts, _parameters, "allow") == _withheld("NotAllowed", {}) with data.rule as module
	}
}

test_allow_gives_its_reason if {
	explanation := {"messages": ["not yet"]}
	every module in [{"allow": false, "reason": "not yet"}, {"reason": "not yet"}] {
		custom.decision(_facts, _parameters, "allow") == _withheld("NotAllowed", explanation) with data.rule as module
	}
}

test_allow_of_another_type_withholds if {
	every value in ["true", 1, null, {true}, [true], {"allow": true}] {
		decision := custom.decision(_facts, _parameters, "allow") with data.rule as {"allow": value}
		decision.withheld == {"request": "WrongType"}
		startswith(decision.explanation.messages[0], "allow is of type ")
	}
}

test_reason_of_another_type_is_named if {
	explanation := {"messages": ["reason is of type number, not a string"]}
	module := {"allow": false, "reason": 1}
	custom.decision(_facts, _parameters, "allow") == _withheld("WrongType", explanation) with data.rule as module
}

test_deny_passes_when_it_is_empty if {
	custom.decision(_facts, _parameters, "deny") == _passed with data.rule as {"deny": set()}
}

test_deny_withholds_with_its_messages_in_order if {
	explanation := {"messages": ["a", "b"]}
	custom.decision(_facts, _parameters, "deny") == _withheld("Denied", explanation) with data.rule as {"deny": {"b", "a"}}
}

test_deny_returns_the_first_details_and_the_shortest_delay if {
	module := {"deny": {
		"a",
		{"message": "b", "retry_after_seconds": 60},
		{"message": "c", "retry_after_seconds": 0.5, "details": {"n": 1}},
		{"message": "d", "details": [2]},
	}}
	decision := custom.decision(_facts, _parameters, "deny") with data.rule as module
	sort(decision.explanation.messages) == ["a", "b", "c", "d"]
	decision.explanation.retry_after_seconds == [0.5]
	count(decision.explanation.details) == 1
}

test_deny_gives_ten_messages_at_most if {
	module := {"deny": {sprintf("%d", [n]) | some n in numbers.range(1, 100)}}
	decision := custom.decision(_facts, _parameters, "deny") with data.rule as module
	count(decision.explanation.messages) == 10
}

test_deny_with_a_member_of_another_type_withholds if {
	every member in [
		1,
		{},
		{"message": 1},
		{"message": "m", "retry_after_seconds": 0},
		{"message": "m", "retry_after_seconds": "1"},
		{"message": "m", "retryAfterSeconds": 1},
	] {
		decision := custom.decision(_facts, _parameters, "deny") with data.rule as {"deny": {"fine", member}}
		decision.withheld == {"request": "WrongType"}
		count(decision.explanation.messages) == 1
	}
}

test_warn_and_dry_run_pass_and_return_what_would_wait if {
	every mode in ["Warn", "DryRun"] {
		parameters := object.union(_parameters, {"enforcement": mode})
		decision := custom.decision(_facts, parameters, "deny") with data.rule as {"deny": {"no"}}
		decision.passed == {"request"}
		decision.would == {"request": "Denied"}
		decision.explanation.messages == ["no"]
	}
}

test_passes_what_the_rule_does_not_apply_to if {
	every parameters in [
		object.union(_parameters, {"name": "skipped"}),
		object.union(_parameters, {"conditions": ["delete"]}),
		object.union(_parameters, {"filter": {"matchLabels": {"app": "db"}}}),
	] {
		custom.decision(_facts, parameters, "allow") == _passed with data.rule as {}
		custom.decision(_facts, parameters, "deny") == _passed with data.rule as {"deny": {1}}
	}
}

test_undefined_without_a_fact_or_an_answer if {
	not _decided(json.remove(_facts, ["pod/node"]), _parameters, "allow")
	not _decided(_facts, object.remove(_parameters, ["name"]), "allow")
	not _decided(_facts, _parameters, "deny")
	not _decided(_facts, _parameters, "other")
	_decided(_facts, _parameters, "allow")
}

_decided(facts, parameters, entry) if is_object(custom.decision(facts, parameters, entry)) with data.rule as {}
