# METADATA
# title: One per shard
# description: |
#   Of the pods of one shard, by the label parameters.shard_label, at most one is unavailable: a
#   pod passes only while all others of its shard are available and hold no permit. A pod without
#   the label may belong to any shard, so it waits, and others wait for it while it is
#   unavailable. A pod that is not available itself waits only for permits of others: it costs
#   the shard nothing, and two broken pods would otherwise wait for each other.
package rule.one_per_shard

# METADATA
# description: True if no other pod of the same shard is unavailable.
# scope: document
allow if {
	_shard != ""
	every other in input.pods { _harmless(other) }
}

# METADATA
# description: The first five pods of the shard that the pod waits for.
# scope: document
default reason := "the pods of the shard are not known"

reason := sprintf("pod %s has no label %s", [input.pod.name, input.parameters.shard_label]) if not _shard

reason := sprintf("shard %s is in use: %s", [_shard, concat(", ", array.slice(_in_the_way, 0, 5))]) if {
	count(_in_the_way) > 0
}

_shard := input.pod.labels[input.parameters.shard_label]

_harmless(other) if other.labels[input.parameters.shard_label] != _shard

_harmless(other) if {
	other.permitted == false
	other.available == true
}

_harmless(other) if {
	other.permitted == false
	input.pod.available == false
}

_in_the_way := [sprintf("%s %s", [other.name, _state(other)]) |
	some other in input.pods
	not _harmless(other)
]

_state(other) := "holds a permit" if other.permitted

_state(other) := "is not available" if not other.permitted
