# METADATA
# title: Alert block
# description: |
#   No pod passes while its namespace has the label parameters.label with any value except
#   "false". If parameters.broken_pods_may_go is true, a pod that is not available passes: it
#   serves no traffic, and replacing it may be the remedy.
package rule.alert_block

# METADATA
# description: True if the namespace has no alert, or the pod serves no traffic.
# scope: document
allow if _alert == "false"

allow if {
	input.parameters.broken_pods_may_go == true
	input.pod.available == false
}

# METADATA
# description: The alert that the pod waits for.
# scope: document
default reason := "the labels of the namespace are not known"

reason := sprintf("namespace %s has the alert label %s=%s", [input.namespace.name, input.parameters.label, _alert])

# Undefined, and not "no alert", if the labels themselves are missing.

#

# podops: absent=permits
_alert := object.get(input.namespace.labels, input.parameters.label, "false")
