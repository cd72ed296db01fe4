package rule.memory_limit_test

import data.rule.memory_limit

# A module that names one of these fields has all of them.
_details := {"images": [], "resources": [], "restarts": 0, "conditions": {}, "started": 0, "ready_since": 0}

_sidecar := {"container": "proxy", "requests": {}, "limits": {"memory": {"value": 67108864, "text": "64Mi"}}}

_limits(limits) := {
	"parameters": {"container": "app", "memory": "512Mi"},
	"pod": object.union(_details, {"name": "web-0", "resources": [
		_sidecar,
		{"container": "app", "requests": {}, "limits": limits},
	]}),
}

_memory(value, text) := _limits({"cpu": {"value": 1, "text": "1"}, "memory": {"value": value, "text": text}})

_withheld := {
	"a lower limit": _memory(536870911, "536870911"),
	"a limit in other units": _memory(512000000, "512M"),
	"no memory limit": _limits({"cpu": {"value": 1, "text": "1"}}),
	"no limits": _limits({}),
	"no such container": object.union(_memory(1073741824, "1Gi"), {"parameters": {"container": "web"}}),
}

test_a_pod_with_enough_memory_goes if {
	memory_limit.allow with input as _memory(536870912, "512Mi")
	memory_limit.allow with input as _memory(1073741824, "1Gi")
}

test_other_pods_wait[name] if {
	some name, facts in _withheld
	not memory_limit.allow with input as facts
}

test_the_reason_has_the_limit if {
	reason := "the memory limit of container app must be at least 512Mi, not 512M"
	memory_limit.reason == reason with input as _withheld["a limit in other units"]
	memory_limit.reason == "container app has no memory limit" with input as _withheld["no limits"]
}

test_without_facts_no_pod_passes if {
	every fact in ["parameters", "pod"] {
		facts := object.remove(_memory(536870912, "512Mi"), [fact])
		not memory_limit.allow with input as facts
		memory_limit.reason == "the memory limit of the pod is not known" with input as facts
	}
}
