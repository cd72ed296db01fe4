package rule.one_zone_at_a_time_test

import data.rule.one_zone_at_a_time

_pod(name, zone) := {"name": name, "labels": {"zone": zone}, "available": true, "permitted": false}

_permitted := {"permitted": true, "available": false}

_unavailable := {"available": false}

_waiting(pods) := {"parameters": {"zone_label": "zone"}, "pod": _pod("web-0", "a"), "pods": pods}

_broken(pods) := object.union(_waiting(pods), {"pod": _unavailable})

_unscheduled := {"name": "new", "labels": {}, "available": false, "permitted": false}

_withheld := {
	"a permit in another zone": _waiting([object.union(_pod("web-1", "b"), _permitted)]),
	"an unavailable pod in another zone": _waiting([object.union(_pod("web-1", "b"), _unavailable)]),
	"a pod that is not scheduled": _waiting([_unscheduled]),
	"a broken pod, and a permit in another zone": _broken([object.union(_pod("web-1", "b"), _permitted)]),
	"no zone": object.union(_waiting([]), {"pod": {"labels": {"zone": ""}}}),
}

test_goes_while_other_zones_are_whole if {
	one_zone_at_a_time.allow with input as _waiting([_pod("web-1", "b"), _pod("web-2", "c")])
}

test_goes_when_it_is_alone if {
	one_zone_at_a_time.allow with input as _waiting([])
}

test_its_own_zone_may_be_in_use if {
	one_zone_at_a_time.allow with input as _waiting([object.union(_pod("web-1", "a"), _permitted)])
}

test_broken_pods_in_two_zones_do_not_wait_for_each_other if {
	one_zone_at_a_time.allow with input as _broken([object.union(_pod("web-1", "b"), _unavailable)])
}

test_waits[name] if {
	some name, facts in _withheld
	not one_zone_at_a_time.allow with input as facts
}

test_a_pod_without_a_zone_waits if {
	facts := object.union(object.remove(_waiting([]), ["pod"]), {"pod": {"name": "web-0", "labels": {}}})
	not one_zone_at_a_time.allow with input as facts
	one_zone_at_a_time.reason == "pod web-0 has no label zone" with input as facts
}

test_the_reason_names_who_is_in_the_way if {
	pods := [_pod("web-1", "b"), object.union(_pod("web-2", "b"), _permitted), _unscheduled]
	want := "zone a waits for other zones: web-2 (b) holds a permit, new (zone unknown) is not available"
	one_zone_at_a_time.reason == want with input as _waiting(pods)
}

test_the_reason_names_five_at_most if {
	pods := [object.union(_pod(name, "b"), _permitted) | some name in ["1", "2", "3", "4", "5", "6"]]
	not contains(one_zone_at_a_time.reason, "6") with input as _waiting(pods)
	contains(one_zone_at_a_time.reason, "5") with input as _waiting(pods)
}

test_without_facts_no_pod_passes if {
	facts := object.remove(_waiting([]), ["pods"])
	not one_zone_at_a_time.allow with input as facts
	one_zone_at_a_time.reason == "the pods of the other zones are not known" with input as facts
}
