package rule.keep_quorum_test

import data.rule.keep_quorum

_pod(name) := {"name": name, "available": true, "permitted": false}

_broken(name) := object.union(_pod(name), {"available": false})

_permitted(name) := object.union(_pod(name), {"permitted": true})

_of(desired, pods) := {
	"parameters": {"spare": 0},
	"counts": {"desired": desired},
	"pod": _pod("etcd-0"),
	"pods": pods,
}

_spare(number, facts) := object.union(facts, {"parameters": {"spare": number}})

_withheld := {
	"half of the pods": _of(4, [_pod("etcd-1"), _pod("etcd-2")]),
	"a broken pod": _of(3, [_pod("etcd-1"), _broken("etcd-2")]),
	"a permit": _of(3, [_pod("etcd-1"), _permitted("etcd-2")]),
	"a missing pod": _of(3, [_pod("etcd-1")]),
	"none to spare": _spare(1, _of(3, [_pod("etcd-1"), _pod("etcd-2")])),
	"one pod": _of(1, []),
}

test_a_pod_goes_while_the_others_are_a_majority if {
	keep_quorum.allow with input as _of(3, [_pod("etcd-1"), _pod("etcd-2")])
	keep_quorum.allow with input as _of(5, [_pod("etcd-1"), _pod("etcd-2"), _pod("etcd-3"), _broken("etcd-4")])
}

test_spare_pods_are_kept if {
	pods := [_pod("etcd-1"), _pod("etcd-2"), _pod("etcd-3"), _pod("etcd-4")]
	keep_quorum.allow with input as _spare(1, _of(5, pods))
	not keep_quorum.allow with input as _spare(2, _of(5, pods))
}

test_a_pod_waits_for_the_quorum[name] if {
	some name, facts in _withheld
	not keep_quorum.allow with input as facts
}

test_a_broken_pod_goes if {
	keep_quorum.allow with input as object.union(_withheld["a missing pod"], {"pod": _broken("etcd-0")})
}

test_all_pods_go_when_none_are_desired if {
	keep_quorum.allow with input as _of(0, [])
}

test_the_reason_has_the_numbers if {
	reason := "1 of 3 pods would be available: no majority with 0 to spare"
	keep_quorum.reason == reason with input as _withheld["a broken pod"]
}

test_without_facts_no_pod_passes if {
	facts := object.remove(_of(3, [_pod("etcd-1"), _pod("etcd-2")]), ["counts"])
	not keep_quorum.allow with input as facts
	keep_quorum.reason == "the number of available pods is not known" with input as facts
}
