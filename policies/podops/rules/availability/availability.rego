# METADATA
# title: availablePolicy
# description: |
#   Bounds how many of the selected pods are unavailable. The rule returns its capacity and the
#   requests that need a slot; the caller grants the slots, because the order of requests does not
#   depend on rules.
package podops.rules.availability

import data.podops.lib.applies
import data.podops.lib.enforcement
import data.podops.lib.quota

# METADATA
# description: |
#   The decision for all requests of facts, see the package enforcement, with its capacity. A
#   request with an unavailable pod passes, since an operation on that pod costs nothing; one
#   with an available pod needs a slot; one with an unknown availability is in no part.
#   Undefined if a count or both bounds are missing.
# scope: document
decision(facts, parameters) := object.union(applied, {"capacity": free}) if {
	free := capacity(facts.counts, parameters)
	scope := applies.split(facts, parameters)
	available := {key: facts.requests[key].pod.available | some key in scope.subject}
	needs_slot := {key | some key, answer in available; answer == true}
	unavailable := {key | some key, answer in available; answer == false}
	applied := enforcement.apply(parameters.enforcement, {
		"passed": (scope.exempt | unavailable),
		"needs_slot": needs_slot,
		"withheld": {},
		"lacking": {key: "NoRoom" | some key in needs_slot; free.slots == 0},
	})
}

# METADATA
# description: |
#   How many more pods may become unavailable (slots), with the numbers that it is computed from.
#   The desired number less max_unavailable must stay available. A pod beyond the desired number
#   that is still starting is therefore not an unavailable one, and an available one frees a slot.
#   A reserved pod is about to become unavailable and counts as unavailable. A bound that is not
#   set is -1.
# scope: document
capacity(counts, parameters) := {
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

# A bound of -1 is not set and has no effect. Without bounds there is no greatest element.
_set(bound, least) := {least | bound >= 0}
