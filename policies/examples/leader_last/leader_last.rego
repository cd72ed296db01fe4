# METADATA
# title: Leader last
# description: |
#   The leader, by the label parameters.leader_key=leader_value, goes when every other pod of its
#   owner has a revision other than its own, is available and holds no permit, so leadership
#   moves once, to a pod that is done. The others go as long as some other pod of their owner is
#   marked as the leader: while nobody is, any of them may be about to become it. A pod that is
#   not marked and not available need not wait for that.
#
#   Revisions are compared with the one of the leader and not with a target, so it does not
#   matter whether pods are replaced or updated in place. Only what changes the revision ends
#   the wait of a leader: let the rule's conditions name such operations if there are others.
package rule.leader_last

# METADATA
# description: True for followers of a leader, and for a leader that all others are ahead of.
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
# description: Who the leader waits for, the first five of them, or that there is no leader.
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

# The first of the labels that the pod has. Pods of one owner have the same ones.
_label := [key | some key in input.parameters.revision_labels; input.pod.labels[key]][0]
