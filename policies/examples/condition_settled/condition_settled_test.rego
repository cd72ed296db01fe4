package rule.condition_settled_test

import data.rule.condition_settled

_minute := 60000000000

_now := 1000 * _minute

# A module that names one of these fields has all of them.
_details := {"images": [], "resources": [], "restarts": 0, "conditions": {}, "started": 0, "ready_since": 0}

_pod(name, conditions) := object.union(_details, {
	"name": name,
	"available": true,
	"permitted": false,
	"conditions": conditions,
})

_synced(name, minutes) := _pod(name, {"example.com/synced": {
	"status": "True",
	"reason": "",
	"since": _now - (minutes * _minute),
}})

_changed(name, change) := object.union(_synced(name, 60), {"conditions": {"example.com/synced": change}})

_permitted(name) := object.union(_synced(name, 60), {"permitted": true})

_waiting(pods) := {
	"now": _now,
	"parameters": {"type": "example.com/synced", "minutes": 10},
	"pod": _pod("db-0", {}),
	"pods": pods,
}

_withheld := {
	"a young condition": _waiting([_synced("db-1", 9), _synced("db-2", 5), _synced("db-3", 60)]),
	"a condition that is false": _waiting([_synced("db-1", 60), _changed("db-2", {"status": "False"})]),
	"a condition of unknown time": _waiting([_changed("db-1", {"since": 0})]),
	"no condition": _waiting([_pod("db-1", {"Ready": {"status": "True", "reason": "", "since": 1}})]),
	"a permit": _waiting([_permitted("db-1")]),
}

_denied(name) := answers if answers := condition_settled.deny with input as _withheld[name]

test_a_pod_goes_when_the_others_are_settled if {
	condition_settled.deny == set() with input as _waiting([_synced("db-1", 10), _synced("db-2", 60)])
	condition_settled.deny == set() with input as _waiting([])
}

test_a_pod_waits[name] if {
	some name, facts in _withheld
	condition_settled.deny != set() with input as facts
}

test_a_broken_pod_goes if {
	facts := object.union(_withheld["no condition"], {"pod": {"available": false}})
	condition_settled.deny == set() with input as facts
}

test_the_latest_condition_counts if {
	_denied("a young condition") == {{
		"message": "pod db-2 must have example.com/synced=True for 10 minutes",
		"retry_after_seconds": 300,
	}}
}

test_the_message_names_the_pod if {
	_denied("a condition that is false") == {"pod db-2 must have the condition example.com/synced=True"}
	_denied("a condition of unknown time") == {"pod db-1 must have the condition example.com/synced=True"}
	_denied("no condition") == {"pod db-1 must have the condition example.com/synced=True"}
	_denied("a permit") == {"pod db-1 holds a permit"}
}

test_without_facts_no_pod_passes if {
	every fact in ["now", "parameters", "pods"] {
		facts := object.remove(_waiting([_synced("db-1", 60)]), [fact])
		condition_settled.deny != set() with input as facts
	}
	unknown := {"the conditions of the other pods are not known"}
	condition_settled.deny == unknown with input as object.remove(_waiting([]), ["pods"])
}
