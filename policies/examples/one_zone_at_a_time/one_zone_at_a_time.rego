# METADATA
# title: One zone at a time
# description: |
#   A pod passes only while every pod of the other zones is available and holds no permit. The
#   zone is the label parameters.zone_label of the pod. A pod without it waits, and others wait
#   for it while it is unavailable: it may be in any zone. A pod that is not available itself
#   waits only for permits in other zones: it costs nothing, and two zones with a broken pod each
#   would otherwise wait for each other.
package rule.one_zone_at_a_time

# METADATA
# description: True if no pod of another zone is unavailable.
# scope: document
allow if {
	_zone != ""
	every other in input.pods { _harmless(other) }
}

# METADATA
# description: The first five pods of other zones that the pod waits for.
# scope: document
default reason := "the pods of the other zones are not known"

reason := sprintf("pod %s has no label %s", [input.pod.name, input.parameters.zone_label]) if not _zone

reason := sprintf("zone %s waits for other zones: %s", [_zone, concat(", ", array.slice(_in_the_way, 0, 5))]) if {
	count(_in_the_way) > 0
}

_zone := input.pod.labels[input.parameters.zone_label]

_harmless(other) if other.labels[input.parameters.zone_label] == _zone

_harmless(other) if {
	other.permitted == false
	other.available == true
}

_harmless(other) if {
	other.permitted == false
	input.pod.available == false
}

_in_the_way := [sprintf("%s (%s) %s", [other.name, _zone_of(other), _state(other)]) |
	some other in input.pods
	not _harmless(other)
]

_zone_of(other) := object.get(other.labels, input.parameters.zone_label, "zone unknown")

_state(other) := "holds a permit" if other.permitted

_state(other) := "is not available" if not other.permitted
