package rule.owner_pattern_test

import data.rule.owner_pattern

_of(kind, name) := {
	"parameters": {"owners": ["Deployment/web-*", "{StatefulSet,DaemonSet}/cache"]},
	"pod": {"name": "web-0", "owner": {"kind": kind, "name": name}},
}

_withheld := {
	"another name": _of("Deployment", "api"),
	"another kind": _of("StatefulSet", "web-shop"),
	"part of a name": _of("Deployment", "old-web-shop"),
	"no owner": object.union(_of("", ""), {"parameters": {"owners": ["*/*"]}}),
	"no pattern": object.union(_of("Deployment", "web-shop"), {"parameters": {"owners": []}}),
}

test_a_pod_of_a_matching_owner_goes if {
	owner_pattern.allow with input as _of("Deployment", "web-shop")
	owner_pattern.allow with input as _of("StatefulSet", "cache")
	owner_pattern.allow with input as _of("DaemonSet", "cache")
}

test_other_pods_wait[name] if {
	some name, facts in _withheld
	not owner_pattern.allow with input as facts
}

test_the_reason_names_the_owner_and_the_patterns if {
	owner_pattern.reason == concat(" ", [
		"the owner Deployment/api matches none of:",
		"Deployment/web-*, {StatefulSet,DaemonSet}/cache",
	]) with input as _withheld["another name"]
}

test_the_reason_of_a_pod_without_an_owner if {
	owner_pattern.reason == "pod web-0 has no owner" with input as _withheld["no owner"]
}

test_without_facts_no_pod_passes if {
	facts := object.remove(_of("Deployment", "web-shop"), ["pod"])
	not owner_pattern.allow with input as facts
	owner_pattern.reason == "the owner of the pod is not known" with input as facts
	not owner_pattern.allow with input as object.remove(_of("Deployment", "web-shop"), ["parameters"])
}
