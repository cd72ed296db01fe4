package podops.rules.approval_test

import data.podops.rules.approval

_parameters := {
	"name": "approved",
	"stage": "PreCheck",
	"enforcement": "Enforce",
	"min_approvals": 1,
	"allow_author": false,
}

_two := object.union(_parameters, {"min_approvals": 2})

_any := object.union(_parameters, {"allow_author": true})

_outdated := {"revision": "b", "current": false, "author": "carol", "approved_by": [], "denied_by": []}

_with(changes) := {
	"pod": {"labels": {"app": "web"}, "skip_rules": [], "available": true},
	"operation": {"id": "a", "type": "delete"},
	"approval": object.union(_outdated, changes),
}

_decision(request, parameters) := approval.decision({"stage": "PreCheck", "requests": {"p": request}}, parameters)

_passes(changes, parameters) if {
	decision := _decision(_with(changes), parameters)
	decision.passed == {"p"}
	decision.withheld == {}
}

_withholds(changes, parameters, code) if {
	decision := _decision(_with(changes), parameters)
	decision.passed == set()
	decision.withheld == {"p": code}
}

test_a_pod_waits_until_its_revision_is_approved if {
	_withholds({}, _parameters, "NotApproved")
	_passes({"approved_by": ["alice"]}, _parameters)
}

test_enough_users_must_have_approved if {
	_withholds({"approved_by": ["alice"]}, _two, "NotApproved")
	_passes({"approved_by": ["alice", "bob"]}, _two)
}

test_a_user_counts_once if _withholds({"approved_by": ["alice", "alice"]}, _two, "NotApproved")

test_the_author_does_not_count if {
	_withholds({"approved_by": ["carol"]}, _parameters, "NotApproved")
	_withholds({"approved_by": ["alice", "carol"]}, _two, "NotApproved")
	_passes({"approved_by": ["alice", "carol"]}, _parameters)
}

test_the_author_counts_where_the_rule_allows_it if _passes({"approved_by": ["carol"]}, _any)

test_an_unknown_author_requires_one_approval_more if {
	_withholds({"author": "", "approved_by": ["alice"]}, _parameters, "NotApproved")
	_passes({"author": "", "approved_by": ["alice", "bob"]}, _parameters)
	_passes({"author": "", "approved_by": ["alice"]}, _any)
}

test_one_user_who_denies_is_enough if {
	_withholds({"approved_by": ["alice", "bob"], "denied_by": ["dan"]}, _parameters, "RevisionDenied")
	_withholds({"denied_by": ["dan"]}, _parameters, "RevisionDenied")
}

test_a_pod_of_the_revision_passes if {
	_passes({"current": true}, _two)
	_passes({"current": true, "denied_by": ["dan"]}, _two)
}

test_nothing_passes_while_the_revision_is_not_known if {
	_withholds({"revision": "", "approved_by": ["alice"]}, _parameters, "NotApproved")
	_withholds({"revision": "", "current": true}, _parameters, "NotApproved")
}

test_passes_what_the_rule_does_not_apply_to if {
	_passes({}, object.union(_parameters, {"conditions": ["update"]}))
}

test_warn_passes_and_returns_what_would_wait if {
	_decision(_with({}), object.union(_parameters, {"enforcement": "Warn"})) == {
		"passed": {"p"},
		"needs_slot": set(),
		"withheld": {},
		"would": {"p": "NotApproved"},
	}
}

test_nothing_passes_when_a_fact_is_missing if {
	every fact in ["current", "revision", "author", "approved_by", "denied_by"] {
		request := object.union(
			object.remove(_with({}), ["approval"]),
			{"approval": object.remove(object.union(_outdated, {"approved_by": ["alice"]}), [fact])},
		)
		decision := _decision(request, _parameters)
		decision.passed == set()
		decision.withheld == {}
	}
	_decision(object.remove(_with({}), ["approval"]), _parameters).passed == set()
}

test_nothing_is_decided_without_parameters if {
	every parameter in ["min_approvals", "allow_author"] {
		not _decision(_with({"approved_by": ["alice"]}), object.remove(_parameters, [parameter]))
	}
}
