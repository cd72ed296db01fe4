package rule.one_per_shard_test

import data.rule.one_per_shard

_pod(name, shard) := {"name": name, "labels": {"shard": shard}, "available": true, "permitted": false}

_permitted := {"permitted": true, "available": false}

_unavailable := {"available": false}

_waiting(pods) := {"parameters": {"shard_label": "shard"}, "pod": _pod("db-0", "a"), "pods": pods}

_broken(pods) := object.union(_waiting(pods), {"pod": _unavailable})

_stray := {"name": "stray", "labels": {}, "available": false, "permitted": false}

_withheld := {
	"a permit in the shard": _waiting([object.union(_pod("db-1", "a"), _permitted)]),
	"an unavailable pod in the shard": _waiting([object.union(_pod("db-1", "a"), _unavailable)]),
	"an unavailable pod of no known shard": _waiting([_stray]),
	"a broken pod, and a permit in the shard": _broken([object.union(_pod("db-1", "a"), _permitted)]),
	"no shard": object.union(_waiting([]), {"pod": {"labels": {"shard": ""}}}),
}

test_goes_while_the_rest_of_the_shard_serves if {
	one_per_shard.allow with input as _waiting([_pod("db-1", "a"), _pod("db-2", "a")])
}

test_goes_when_it_is_alone if {
	one_per_shard.allow with input as _waiting([])
}

test_other_shards_do_not_matter if {
	one_per_shard.allow with input as _waiting([object.union(_pod("db-1", "b"), _permitted)])
}

test_a_broken_pod_does_not_wait_for_broken_ones if {
	one_per_shard.allow with input as _broken([object.union(_pod("db-1", "a"), _unavailable)])
}

test_waits[name] if {
	some name, facts in _withheld
	not one_per_shard.allow with input as facts
}

test_a_pod_without_the_label_waits if {
	facts := object.union(object.remove(_waiting([]), ["pod"]), {"pod": {"name": "db-0", "labels": {}}})
	not one_per_shard.allow with input as facts
	one_per_shard.reason == "pod db-0 has no label shard" with input as facts
}

test_the_reason_names_who_is_in_the_way if {
	pods := [_pod("db-1", "a"), object.union(_pod("db-2", "a"), _permitted), _stray]
	one_per_shard.reason == "shard a is in use: db-2 holds a permit, stray is not available" with input as _waiting(pods)
}

test_the_reason_names_five_at_most if {
	pods := [object.union(_pod(name, "a"), _permitted) | some name in ["1", "2", "3", "4", "5", "6"]]
	not contains(one_per_shard.reason, "6") with input as _waiting(pods)
	contains(one_per_shard.reason, "5") with input as _waiting(pods)
}

test_without_facts_no_pod_passes if {
	not one_per_shard.allow with input as object.remove(_waiting([]), ["pods"])
	one_per_shard.reason == "the pods of the shard are not known" with input as object.remove(_waiting([]), ["pods"])
}
