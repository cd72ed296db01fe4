# METADATA
# title: Canary first
# description: |
#   One pod of an owner goes first. The others wait until a pod of the new revision has been
#   available for parameters.minutes minutes. What the new revision is, no fact says: it is
#   taken to be that of the youngest pod which has another revision than the pod that asks and
#   was created, or became available, after that one was created.
package rule.canary_first

# METADATA
# description: Holds a pod until a canary has proved itself, unless the pod may be the canary.
# scope: document
deny contains _answer if not _open

_open if {
	_complete
	count(_updated) == 0
	count(_on_their_way) == 0
	input.counts.selected >= input.counts.desired
}

_open if {
	_complete
	some canary in _canaries
	canary.available == true
	canary.available_since <= input.now - _minutes
}

# A pod that is left out for want of a fact could be the very one to wait for.
_complete if {
	_mine.uid != ""
	_mine.revision != ""
	every other in input.pods { _known(other) }
}

_known(other) if other.owner.uid != _mine.uid

_known(other) if {
	other.owner.uid == _mine.uid
	_revision(other) != ""
	is_boolean(other.permitted)
	is_boolean(other.available)
	is_number(other.created + other.available_since)
}

_mine := {"uid": input.pod.owner.uid, "revision": _revision(input.pod), "created": input.pod.created}

_mates := [other | some other in input.pods; other.owner.uid == _mine.uid]

_on_their_way := [other | some other in _mates; other.permitted]

_updated := [other |
	some other in _mates
	_revision(other) != _mine.revision
	max([other.created, other.available_since]) > _mine.created
]

_youngest := max([other.created | some other in _updated])

_newest := {_revision(other) | some other in _updated; other.created == _youngest}

_canaries := [other | some other in _updated; _revision(other) in _newest]

# The first of the labels that the pod has.
_revision(pod) := [pod.labels[key] | some key in input.parameters.revision_labels][0]

_minutes := input.parameters.minutes * 60000000000

_answer := sprintf("pod %s has no owner, so there is no canary for it", [input.pod.name]) if {
	input.pod.owner.uid == ""
} else := "a pod of the owner has no revision label, or a fact is missing" if {
	not _complete
} else := {
	"message": sprintf("canary %s must be available for %d minutes", [first.name, input.parameters.minutes]),
	"retry_after_seconds": ceil(((first.available_since + _minutes) - input.now) / 1000000000),
} if {
	ripening := [canary | some canary in _canaries; canary.available]
	oldest := min([canary.available_since | some canary in ripening])
	first := [canary | some canary in ripening; canary.available_since == oldest][0]
} else := sprintf("canary %s is not available", [_canaries[0].name]) if {
	count(_canaries) > 0
} else := sprintf("%s goes first, as the canary", [_on_their_way[0].name]) if {
	count(_on_their_way) > 0
} else := "the canary is not there yet"
