package rule.restart_limit_test

import data.rule.restart_limit

# A module that names one of these fields has all of them.
_details := {"images": [], "resources": [], "restarts": 0, "conditions": {}, "started": 0, "ready_since": 0}

_pod(name, restarts) := object.union(_details, {"name": name, "restarts": restarts})

_waiting(pods) := {"parameters": {"restarts": 2}, "pod": _pod("web-0", 0), "pods": pods}

_withheld := {
	"a pod that crashes": _waiting([_pod("web-1", 0), _pod("web-2", 3)]),
	"a pod at the limit, while another crashes": object.union(_waiting([_pod("web-2", 3)]), {"pod": _pod("web-0", 2)}),
}

test_a_pod_goes_while_the_others_are_stable if {
	restart_limit.allow with input as _waiting([_pod("web-1", 0), _pod("web-2", 2)])
	restart_limit.allow with input as _waiting([])
}

test_a_pod_waits[name] if {
	some name, facts in _withheld
	not restart_limit.allow with input as facts
}

test_a_pod_that_crashes_goes if {
	restart_limit.allow with input as object.union(_withheld["a pod that crashes"], {"pod": _pod("web-0", 3)})
}

test_the_reason_names_five_pods_at_most if {
	pods := [_pod(name, 9) | some name in ["1", "2", "3", "4", "5", "6"]]
	restart_limit.reason == "pods with more than 2 restarts: 1, 2, 3, 4, 5" with input as _waiting(pods)
}

test_without_facts_no_pod_passes if {
	every fact in ["parameters", "pods"] {
		facts := object.remove(_waiting([]), [fact])
		not restart_limit.allow with input as facts
		restart_limit.reason == "the restarts of the other pods are not known" with input as facts
	}
}
