package podops.lib.complete_test

import data.podops.lib.complete

_pod := {
	"name": "web-0",
	"namespace": "shop",
	"uid": "1",
	"labels": {},
	"annotations": {},
	"owner": {"kind": "Deployment", "name": "web", "uid": "2"},
	"revision": {"current": "5d4f", "state": "Newest"},
	"node": "",
	"created": 1,
	"ready": false,
	"available": false,
	"available_since": 0,
	"permitted": false,
	"skip_rules": [],
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
	"pods": [_pod, _pod],
	"namespace": {"name": "shop", "labels": {}},
	"counts": {"selected": 3, "desired": 3, "available": 0, "reserved": 0},
	"permits": [{"pod": "web-1", "at": 1}],
	"rule": {"name": "mine", "stage": "PreCheck", "enforcement": "Enforce"},
}

test_complete_when_nothing_is_missing if {
	complete.all(_facts)
	complete.all(object.union(_facts, {"pods": [], "permits": []}))
}

_details := {"images": [], "resources": [], "restarts": 0, "conditions": {}, "started": 1, "ready_since": 0}

test_complete_with_the_details_of_all_pods if {
	detailed := object.union(_pod, _details)
	complete.all(object.union(_facts, {"pod": detailed, "pods": [detailed]}))
	not complete.all(object.union(_facts, {"pod": detailed}))
	not complete.all(object.union(_facts, {"pods": [detailed]}))
	every field, _ in _details {
		not complete.all(object.union(_facts, {"pod": json.remove(detailed, [field]), "pods": []}))
	}
}

_owner := {"kind": "Deployment", "name": "web", "uid": "2", "desired": 3, "revision": "5d4f", "paused": false}

test_complete_with_the_owner if {
	facts := object.union(_facts, {"owner": _owner})
	complete.all(facts)
	every path, _ in object.remove(_paths(facts), ["owner"]) {
		not complete.all(json.remove(facts, [path]))
	}
}

_node := {"name": "n", "labels": {}, "zone": "", "unschedulable": false, "conditions": {}}

test_complete_with_the_node if {
	facts := object.union(_facts, {"owner": _owner, "node": _node})
	complete.all(facts)
	complete.all(object.remove(facts, ["owner"]))
	every path, _ in object.remove(_paths(facts), ["owner", "node"]) {
		not complete.all(json.remove(facts, [path]))
	}
}

test_not_complete_without_one_of_the_facts if {
	every path, _ in _paths(_facts) {
		not complete.all(json.remove(_facts, [path]))
	}
}

test_not_complete_without_a_fact_of_another_pod_or_permit if {
	every field, _ in _pod {
		not complete.all(json.remove(_facts, [sprintf("pods/1/%s", [field])]))
	}
	every field in ["kind", "name", "uid"] {
		not complete.all(json.remove(_facts, [sprintf("pods/0/owner/%s", [field])]))
	}
	every field in ["pod", "at"] {
		not complete.all(json.remove(_facts, [sprintf("permits/0/%s", [field])]))
	}
}

_paths(facts) := {path: true |
	some field, value in facts
	some path in _below(field, value)
}

_below(field, value) := {field} | {sprintf("%s/%s", [field, name]) | some name, _ in value} if {
	is_object(value)
	not field in {"rule", "parameters"}
}

_below(field, value) := {field} if not is_object(value)

_below(field, _) := {field} if field in {"rule", "parameters"}
