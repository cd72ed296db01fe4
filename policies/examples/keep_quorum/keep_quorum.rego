# METADATA
# title: Keep the quorum
# description: |
#   A pod passes if, without it, more than half of the desired pods are available, and
#   parameters.spare pods beyond that. A pod that is not available itself passes: it has no vote. So
#   do all pods when no pods are desired any more. With one or two desired pods there is no majority
#   without the pod, and no available pod passes.
package rule.keep_quorum

# METADATA
# description: True if the others are a majority.
# scope: document
allow if 2 * (count(_voters) - input.parameters.spare) > input.counts.desired

allow if input.pod.available == false

allow if input.counts.desired == 0

# METADATA
# description: The number of other pods that are available, and of desired pods.
# scope: document
default reason := "the number of available pods is not known"

reason := sprintf("%d of %d pods would be available: no majority with %d to spare", [
	count(_voters),
	input.counts.desired,
	input.parameters.spare,
])

# A pod that is left out because of a missing fact has no vote.
_voters := [other.name |
	some other in input.pods
	other.available == true
	other.permitted == false
]
