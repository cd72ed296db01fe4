# METADATA
# title: availablePolicy
# description: |
#   Bounds how many of the selected pods are unavailable. Rego says how much room there is
#   and which requests need a slot of it; the slots are handed out by the caller, since who
#   comes first is not for a rule to say.
package podops.rules.availability

import data.podops.lib.applies
import data.podops.lib.enforcement
import data.podops.lib.quota

# METADATA
# description: |
#   The decision for all requests of facts, see the package enforcement, and its room. A
#   request whose pod is unavailable passes, since operating on that pod costs nothing; one
#   whose pod is available takes a slot; one of which neither is known is in no part.
#   Undefined when a count or both bounds are missing.
# scope: document
decision(facts, parameters) := object.union(settled, {"room": left}) if {
	left := room(facts.counts, parameters)
	asked := applies.split(facts, parameters)
	available := {key: facts.requests[key].pod.available | some key in asked.subject}
	takes := {key | some key, answer in available; answer == true}
	unavailable := {key | some key, answer in available; answer == false}
	settled := enforcement.settle(parameters.enforcement, {
		"passed": (asked.exempt | unavailable),
		"takes": takes,
		"withheld": {},
		"short": {key: "NoRoom" | some key in takes; left.slots == 0},
	})
}

# METADATA
# description: |
#   How many more pods may become unavailable (slots), and the numbers that this comes from.
#   As many must stay available as are desired, less max_unavailable. A pod beyond the desired
#   number that is still starting is therefore not an unavailable one, and one that serves
#   lets another one go. A reserved pod is about to become unavailable and counts as such. A
#   bound that is not set is -1.
# scope: document
room(counts, parameters) := {
	"slots": max([0, available - max(least)]),
	"selected": counts.selected,
	"desired": counts.desired,
	"available": available,
	"max_unavailable": max_unavailable,
	"min_available": min_available,
} if {
	available := counts.available - counts.reserved
	max_unavailable := _max_unavailable(counts, parameters)
	min_available := _min_available(counts, parameters)
	least := _set(max_unavailable, max([0, counts.desired - max_unavailable])) | _set(min_available, min_available)
}

_max_unavailable(counts, parameters) := quota.at_most(parameters.max_unavailable, counts.desired)

_max_unavailable(_, parameters) := -1 if not parameters.max_unavailable

_min_available(counts, parameters) := quota.at_least(parameters.min_available, counts.desired)

_min_available(_, parameters) := -1 if not parameters.min_available

# A bound of -1 is not set and says nothing. With no bound there is no greatest element.
_set(bound, least) := {least | bound >= 0}
