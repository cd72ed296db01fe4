# METADATA
# title: Approved rollout
# description: |
#   In a rollout, no pod of an older revision passes before it has the label parameters.label
#   with the value "true". A scale-in, and every other operation, passes without it.
package rule.approved_rollout

# METADATA
# description: True if the operation is not a rollout, or the pod is approved.
# scope: document
allow if input.operation.cause in {"", "ScaleIn"}

allow if input.pod.labels[input.parameters.label] == "true"

# METADATA
# description: The label that the pod lacks.
# scope: document
reason := sprintf("the rollout waits for the label %s=true", [input.parameters.label])
