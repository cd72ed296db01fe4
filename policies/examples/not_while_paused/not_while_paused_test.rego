package rule.not_while_paused_test

import data.rule.not_while_paused

_web(paused) := {"owner": {"kind": "Deployment", "name": "web", "paused": paused}}

_withheld := {"a paused Deployment": _web(true)}

test_a_pod_goes_while_its_workload_is_not_paused if {
	not_while_paused.allow with input as _web(false)
}

test_a_pod_of_a_paused_deployment_waits if {
	facts := _withheld["a paused Deployment"]
	not not_while_paused.allow with input as facts
	not_while_paused.reason == "Deployment web is paused" with input as facts
}

test_without_facts_no_pod_passes if {
	every facts in [{}, {"owner": {"kind": "Deployment", "name": "web"}}, _web("false")] {
		not not_while_paused.allow with input as facts
		not_while_paused.reason == "whether the workload is paused is not known" with input as facts
	}
}
