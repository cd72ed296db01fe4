# METADATA
# title: Canary first
# description: |
#   One pod of an owner passes first. The others wait until a pod of the new revision has been
#   available for parameters.minutes minutes. No fact names the new revision: it is assumed to
#   be that of the youngest pod with another revision than the pod of the request that was
#   created, or became available, after the pod of the request was created.
package rule.canary_first

# METADATA
# description: Withholds a pod until a canary has been available long enough, unless the pod may be the canary.
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

# A pod that is left out because of a missing fact could be the one to wait for.
_complete if {
	_owner != ""
	_revision != ""
	is_number(input.pod.created)
	count(_mates) + count(_others) == count(input.pods)
}

_mates := [mate |
	some other in input.pods
	other.owner.uid == _owner
	mate := {
		"name": other.name,
		"revision": other.labels[_label],
		"created": other.created,
		"available": other.available,
		"available_since": other.available_since,
		"permitted": other.permitted,
	}
]

_others := [other.name | some other in input.pods; other.owner.uid != _owner]

_on_their_way := [mate | some mate in _mates; mate.permitted]

_updated := [mate |
	some mate in _mates
	mate.revision != _revision
	max([mate.created, mate.available_since]) > input.pod.created
]

_youngest := max([mate.created | some mate in _updated])

_newest := {mate.revision | some mate in _updated; mate.created == _youngest}

_canaries := [mate | some mate in _updated; mate.revision in _newest]

_owner := input.pod.owner.uid

_revision := input.pod.labels[_label]

# The first of these labels that the pod has. Pods of one owner have the same ones.
_label := [key | some key in input.parameters.revision_labels; input.pod.labels[key]][0]

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
