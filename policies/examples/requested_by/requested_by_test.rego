package rule.requested_by_test

import data.rule.requested_by

_with(request) := {
	"parameters": {
		"users": ["system:serviceaccount:ci:deployer"],
		"groups": ["sre", "db-operators"],
		"actors": ["Owner"],
	},
	"operation": {"request": request},
}

_jane(groups) := {"user": "jane", "actor": "Client", "groups": groups}

_permitted := {
	"a user of the list": {"user": "system:serviceaccount:ci:deployer", "actor": "Controller", "groups": []},
	"a member of a group": _jane(["dev", "sre"]),
	"the controller of the workload": {"user": "system:kube-controller-manager", "actor": "Owner", "groups": []},
}

_withheld := {
	"a user of another group": _with(_jane(["dev"])),
	"a user without groups": _with(_jane([])),
	"a requester who is not known": _with({"user": "", "actor": "", "groups": []}),
}

test_some_may_begin_operations[name] if {
	some name, request in _permitted
	requested_by.allow with input as _with(request)
}

test_others_may_not[name] if {
	some name, facts in _withheld
	not requested_by.allow with input as facts
}

test_the_reason_names_the_requester if {
	reason := "jane (Client) is in none of the groups: sre, db-operators"
	requested_by.reason == reason with input as _withheld["a user of another group"]
	requested_by.reason == "the requester is not known" with input as _withheld["a requester who is not known"]
}

test_without_facts_no_operation_begins if {
	facts := object.remove(_with(_jane(["sre"])), ["parameters"])
	not requested_by.allow with input as facts
	requested_by.reason == "the requester is not known" with input as facts
}
