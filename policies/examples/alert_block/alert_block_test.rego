package rule.alert_block_test

import data.rule.alert_block

_input := {
	"parameters": {"label": "alert", "broken_pods_may_go": true},
	"namespace": {"name": "shop", "labels": {"team": "checkout"}},
	"pod": {"name": "web-0", "available": true},
}

_alert(value) := object.union(_input, {"namespace": {"labels": {"alert": value}}})

_withheld := {
	"an alert": _alert("payments"),
	"an alert without a name": _alert(""),
	"a broken pod that must wait": object.union(_alert("payments"), {
		"parameters": {"broken_pods_may_go": false},
		"pod": {"available": false},
	}),
}

test_a_pod_goes_without_an_alert if {
	alert_block.allow with input as _input
	alert_block.allow with input as _alert("false")
}

test_a_pod_waits_while_there_is_an_alert[name] if {
	some name, facts in _withheld
	not alert_block.allow with input as facts
}

test_the_reason_names_the_alert if {
	alert_block.reason == "namespace shop has the alert label alert=payments" with input as _alert("payments")
}

test_a_broken_pod_may_go if {
	alert_block.allow with input as object.union(_alert("payments"), {"pod": {"available": false}})
}

test_unknown_labels_are_no_all_clear if {
	facts := object.union(object.remove(_input, ["namespace"]), {"namespace": {"name": "shop"}})
	not alert_block.allow with input as facts
	alert_block.reason == "the labels of the namespace are not known" with input as facts
}
