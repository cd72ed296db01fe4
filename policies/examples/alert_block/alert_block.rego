# METADATA
# title: Alert block
# description: |
#   No pod goes while its namespace carries the label parameters.label, with whatever value but
#   "false". A pod that is not available may go all the same if parameters.broken_pods_may_go
#   says so: it serves nobody, and replacing it may be the remedy.
package rule.alert_block

# METADATA
# description: True when the namespace carries no alert, or the pod serves nobody anyway.
# scope: document
allow if _alert == "false"

allow if {
	input.parameters.broken_pods_may_go == true
	input.pod.available == false
}

# METADATA
# description: Which alert holds the pod.
# scope: document
default reason := "the labels of the namespace are not known"

reason := sprintf("namespace %s has the alert label %s=%s", [input.namespace.name, input.parameters.label, _alert])

# Undefined, and not "no alert", when the labels themselves are missing.
_alert := object.get(input.namespace.labels, input.parameters.label, "false")
