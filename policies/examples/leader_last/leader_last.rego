# METADATA
# title: Leader last
# description: |
#   The leader, by the label parameters.leader_key=leader_value, passes if every other pod of its
#   owner has another revision, is available and holds no permit, so that leadership moves once,
#   to an updated pod. The others pass as long as some other pod of their owner has the label:
#   without a leader, any of them may become it. A pod that has no such label and is not
#   available does not wait for that.
#
#   Revisions are compared with that of the leader and not with a target, so pods may be replaced
#   or updated in place. Only an operation that changes the revision ends the wait of a leader:
#   list such operations in the rule's conditions if there are others.
package rule.leader_last

# METADATA
# description: True for followers of a leader, and for a leader whose followers are all updated.
# scope: document
allow if {
	_follows
	_owner != ""
	some other in input.pods
	other.owner.uid == _owner
	other.labels[input.parameters.leader_key] == input.parameters.leader_value
}

allow if {
	_follows
	input.pod.available == false
}

allow if {
	_leads
	_owner != ""
	_revision != ""
	input.counts.selected >= input.counts.desired
	every other in input.pods { _ahead(other) }
}

# METADATA
# description: The first five pods that the leader waits for, or that there is no leader.
# scope: document
default reason := "it is not known who leads"

reason := sprintf("no other pod has the label %s=%s", [key, input.parameters.leader_value]) if {
	_follows
	key := input.parameters.leader_key
}

reason := _why_the_leader_waits if _leads

_why_the_leader_waits := "the leader has no owner" if {
	_owner == ""
} else := "the leader has no revision label" if {
	not _revision
} else := sprintf("the leader waits for the others: %s", [concat(", ", array.slice(_behind, 0, 5))]) if {
	count(_behind) > 0
} else := sprintf("the leader waits: %d of %d pods exist", [input.counts.selected, input.counts.desired])

_follows if object.get(input.pod.labels, input.parameters.leader_key, "") != input.parameters.leader_value

_leads if input.pod.labels[input.parameters.leader_key] == input.parameters.leader_value

_owner := input.pod.owner.uid

_ahead(other) if other.owner.uid != _owner

_ahead(other) if {
	other.labels[_label] != _revision
	other.available == true
	other.permitted == false
}

_behind := [sprintf("%s %s", [other.name, _state(other)]) |
	some other in input.pods
	not _ahead(other)
]

_state(other) := "holds a permit" if {
	other.permitted
} else := "is not available" if {
	not other.available
} else := "has the same revision"

_revision := input.pod.labels[_label]

# The first of these labels that the pod has. Pods of one owner have the same ones.
_label := [key | some key in input.parameters.revision_labels; input.pod.labels[key]][0]
