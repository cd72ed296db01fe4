package rule.few_per_node_test

import data.rule.few_per_node

_pod(name, node) := {"name": name, "node": node, "available": true, "permitted": false}

_permitted := {"permitted": true, "available": false}

_unavailable := {"available": false}

_waiting(pods) := {"parameters": {"pods": 1}, "pod": _pod("web-0", "n1"), "pods": pods}

_two(pods) := object.union(_waiting(pods), {"parameters": {"pods": 2}})

_broken(pods) := object.union(_waiting(pods), {"pod": _unavailable})

_withheld := {
	"a permit on the node": _waiting([object.union(_pod("web-1", "n1"), _permitted)]),
	"an unavailable pod on the node": _waiting([object.union(_pod("web-1", "n1"), _unavailable)]),
	"a broken pod, and a permit on the node": _broken([object.union(_pod("web-1", "n1"), _permitted)]),
	"two of two": _two([object.union(_pod("web-1", "n1"), _permitted), object.union(_pod("web-2", "n1"), _unavailable)]),
}

test_goes_while_the_rest_of_the_node_serves if {
	few_per_node.allow with input as _waiting([_pod("web-1", "n1"), _pod("web-2", "n2")])
	few_per_node.allow with input as _waiting([])
}

test_goes_while_there_is_room if {
	few_per_node.allow with input as _two([object.union(_pod("web-1", "n1"), _permitted)])
}

test_other_nodes_do_not_matter if {
	few_per_node.allow with input as _waiting([object.union(_pod("web-1", "n2"), _permitted)])
}

test_a_broken_pod_does_not_wait_for_broken_ones if {
	few_per_node.allow with input as _broken([object.union(_pod("web-1", "n1"), _unavailable)])
}

test_waits[name] if {
	some name, facts in _withheld
	not few_per_node.allow with input as facts
}

test_a_pod_on_no_node_goes if {
	facts := _waiting([object.union(_pod("web-1", ""), _unavailable)])
	few_per_node.allow with input as object.union(facts, {"pod": {"node": ""}})
}

test_the_reason_names_who_is_in_the_way if {
	reason := "node n1 waits for: web-1 holds a permit, web-2 is not available"
	few_per_node.reason == reason with input as _withheld["two of two"]
}

test_the_reason_names_five_at_most if {
	pods := [object.union(_pod(name, "n1"), _permitted) | some name in ["1", "2", "3", "4", "5", "6"]]
	not contains(few_per_node.reason, "6") with input as _waiting(pods)
	contains(few_per_node.reason, "5") with input as _waiting(pods)
}

test_without_facts_no_pod_passes if {
	every fact in ["pods", "pod", "parameters"] {
		not few_per_node.allow with input as object.remove(_waiting([]), [fact])
	}
	few_per_node.reason == "the pods on the node are not known" with input as object.remove(_waiting([]), ["pods"])
}
