# METADATA
# title: Settled condition
# description: |
#   A pod passes when the condition parameters.type of every other pod has been True for
#   parameters.minutes minutes, and no other pod holds a permit. The condition may be one that a
#   controller of yours sets, for instance once a replica has all data. A pod that is not available
#   itself passes at once: replacing it may be the remedy.
package rule.condition_settled

# METADATA
# description: Withholds a pod until the condition of the others has been True long enough.
# scope: document
deny contains _answer if not _open

_open if {
	is_number(_wait)
	every other in input.pods { _settled(other) }
}

_open if input.pod.available == false

_settled(other) if {
	other.permitted == false
	_true_since(other) <= input.now - _wait
}

# Undefined if the condition is absent or not True, or its time is not known.
_true_since(other) := condition.since if {
	condition := other.conditions[input.parameters.type]
	condition.status == "True"
	condition.since > 0
}

_wait := input.parameters.minutes * 60000000000

_behind := [other | some other in input.pods; not _settled(other)]

_answer := sprintf("pod %s must have the condition %s=True", [lacking[0], input.parameters.type]) if {
	lacking := [other.name | some other in _behind; not _true_since(other)]
	count(lacking) > 0
} else := sprintf("pod %s holds a permit", [permitted[0]]) if {
	permitted := [other.name | some other in _behind; other.permitted]
	count(permitted) > 0
} else := {
	"message": sprintf("pod %s must have %s=True for %d minutes", [last.name, input.parameters.type, minutes]),
	"retry_after_seconds": ceil(((latest + _wait) - input.now) / 1000000000),
} if {
	minutes := input.parameters.minutes
	latest := max([_true_since(other) | some other in _behind])
	last := [other | some other in _behind; _true_since(other) == latest][0]
} else := "the conditions of the other pods are not known"
