# METADATA
# title: Approved rollout
# description: |
#   No pod of an older revision goes in a rollout before it carries the label parameters.label
#   with the value "true". A scale-in, and every other operation, goes without it.
package rule.approved_rollout

# METADATA
# description: True when the pod does not go in a rollout, or is approved.
# scope: document
allow if input.operation.cause in {"", "ScaleIn"}

allow if input.pod.labels[input.parameters.label] == "true"

# METADATA
# description: What the pod lacks.
# scope: document
reason := sprintf("the rollout waits for the label %s=true", [input.parameters.label])
