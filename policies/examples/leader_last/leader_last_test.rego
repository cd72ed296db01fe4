package rule.leader_last_test

import data.rule.leader_last

_pod(name, role, revision) := {
	"name": name,
	"labels": {"role": role, "rev": revision},
	"owner": {"uid": "u1"},
	"available": true,
	"permitted": false,
}

_facts(pod, pods) := {
	"parameters": {"leader_key": "role", "leader_value": "leader", "revision_labels": ["pod-template-hash", "rev"]},
	"counts": {"selected": count(pods) + 1, "desired": count(pods) + 1},
	"pod": pod,
	"pods": pods,
}

_leader := _pod("db-0", "leader", "1")

_follower := _pod("db-1", "replica", "1")

_done := _pod("db-2", "replica", "2")

_away := {"available": false, "permitted": true}

_foreign := {"owner": {"uid": "u2"}}

_unmarked(pod) := object.union(object.remove(pod, ["labels"]), {"labels": {"rev": "1"}})

_orphan(pod) := object.union(pod, {"owner": {"uid": ""}})

_withheld := {
	"a follower is not done": _facts(_leader, [_follower, _done]),
	"a follower is away": _facts(_leader, [object.union(_done, _away)]),
	"a follower is not back": _facts(_leader, [object.union(_done, {"available": false})]),
	"a follower is on its way": _facts(_leader, [object.union(_done, {"permitted": true})]),
	"a follower is missing": object.union(_facts(_leader, [_done]), {"counts": {"desired": 3}}),
	"a leader without owner": _facts(_orphan(_leader), [_done]),
	"no leader": _facts(_follower, [_done]),
	"no role is known": _facts(_unmarked(_follower), [_unmarked(_done)]),
	"another workload leads": _facts(_follower, [object.union(_leader, _foreign)]),
	"a follower without owner": _facts(_orphan(_follower), [_orphan(_leader)]),
}

test_followers_go_before_the_leader if {
	leader_last.allow with input as _facts(_follower, [_leader, _done])
	leader_last.allow with input as _facts(_unmarked(_follower), [_leader])
}

test_the_leader_goes_when_all_others_are_done if {
	leader_last.allow with input as _facts(_leader, [_done])
}

test_the_leader_goes_when_it_is_alone if {
	leader_last.allow with input as _facts(_leader, [])
}

test_other_workloads_do_not_hold_the_leader if {
	leader_last.allow with input as _facts(_leader, [_done, object.union(_follower, _foreign)])
}

test_a_broken_follower_needs_no_leader if {
	leader_last.allow with input as _facts(object.union(_follower, {"available": false}), [_done])
}

test_waits[name] if {
	some name, facts in _withheld
	not leader_last.allow with input as facts
}

test_the_leader_waits_without_a_revision if {
	leader := object.union(object.remove(_leader, ["labels"]), {"labels": {"role": "leader"}})
	not leader_last.allow with input as _facts(leader, [_done])
	leader_last.reason == "the leader has no revision label" with input as _facts(leader, [_done])
}

test_the_reason_has_the_pods_that_the_leader_waits_for if {
	others := [
		_follower,
		object.union(_pod("db-3", "replica", "2"), {"available": false}),
		object.union(_pod("db-4", "replica", "2"), _away),
	]
	leader_last.reason == concat("", [
		"the leader waits for the others: ",
		"db-1 has the same revision, db-3 is not available, db-4 holds a permit",
	]) with input as _facts(_leader, others)
	leader_last.reason == "the leader has no owner" with input as _withheld["a leader without owner"]
	leader_last.reason == "the leader waits: 2 of 3 pods exist" with input as _withheld["a follower is missing"]
}

test_the_reason_names_a_missing_leader if {
	leader_last.reason == "no other pod has the label role=leader" with input as _withheld["no leader"]
}

test_without_facts_no_pod_passes if {
	facts := object.remove(_facts(_leader, []), ["pod"])
	not leader_last.allow with input as facts
	leader_last.reason == "it is not known who leads" with input as facts
}
