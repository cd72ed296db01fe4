# METADATA
# title: Minimum age
# description: |
#   A pod passes when it has existed for parameters.minutes minutes, so that node upgrades,
#   autoscalers and rollouts in quick succession do not move the same work again and again.
package rule.minimum_age

# METADATA
# description: Withholds a pod until it is old enough.
# scope: document
deny contains _answer if not _open

_open if _ripe <= input.now

_ripe := input.pod.created + (input.parameters.minutes * 60000000000)

default _answer := "the age of the pod is not known"

_answer := {
	"message": sprintf("pod %s must be %d minutes old", [input.pod.name, input.parameters.minutes]),
	"retry_after_seconds": ceil((_ripe - input.now) / 1000000000),
} if {
	_ripe > input.now
}
