# METADATA
# title: Memory limit
# description: |
#   A pod passes if the memory limit of its container parameters.container is at least
#   parameters.memory, such as 512Mi. A container without a limit has too little: its node may
#   evict it first. In the stage PostCheck, the limit is that after an update in place.
package rule.memory_limit

# METADATA
# description: True if the limit is high enough.
# scope: document
allow if _limit.value >= units.parse_bytes(input.parameters.memory)

# METADATA
# description: The limit, and the limit that it must have.
# scope: document
default reason := "the memory limit of the pod is not known"

reason := sprintf("the memory limit of container %s must be at least %s, not %s", [
	input.parameters.container,
	input.parameters.memory,
	_limit.text,
])

reason := sprintf("container %s has no memory limit", [input.parameters.container]) if {
	is_array(input.pod.resources)
	not _limit
}

_limit := container.limits.memory if {
	some container in input.pod.resources
	container.container == input.parameters.container
}
