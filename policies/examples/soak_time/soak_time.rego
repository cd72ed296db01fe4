# METADATA
# title: Soak time
# description: |
#   A pod passes when every other pod of its owner has been available for parameters.minutes
#   minutes, so that each new pod proves itself before the next pod goes. A pod that is not
#   available itself passes at once: replacing it may be the remedy. Pods without an owner count
#   as pods of one owner.
package rule.soak_time

# METADATA
# description: Withholds a pod until the youngest of the others has been available long enough.
# scope: document
deny contains _answer if not _open

_open if {
	is_number(_soak)
	every other in input.pods { _soaked(other) }
}

_open if input.pod.available == false

_soaked(other) if other.owner.uid != input.pod.owner.uid

_soaked(other) if {
	other.available == true
	other.available_since <= input.now - _soak
}

_soak := input.parameters.minutes * 60000000000

_behind := [other | some other in input.pods; not _soaked(other)]

_answer := sprintf("pod %s must become available", [broken[0]]) if {
	broken := [other.name | some other in _behind; other.available == false]
	count(broken) > 0
} else := {
	"message": sprintf("pod %s must be available for %d minutes", [last.name, input.parameters.minutes]),
	"retry_after_seconds": ceil(((last.available_since + _soak) - input.now) / 1000000000),
} if {
	youngest := max([other.available_since | some other in _behind])
	last := [other | some other in _behind; other.available_since == youngest][0]
} else := "it is not known how long the other pods have been available"
