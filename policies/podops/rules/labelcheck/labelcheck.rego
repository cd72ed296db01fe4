# METADATA
# title: labelCheck
# description: |
#   A request passes when the labels of its pod match parameters.requires.
package podops.rules.labelcheck

import data.podops.lib.applies
import data.podops.lib.enforcement
import data.podops.lib.selector

# METADATA
# description: |
#   The decision for all requests of facts, see the package enforcement. A request whose pod
#   has no labels document is in no part of it.
# scope: document
decision(facts, parameters) := enforcement.apply(parameters.enforcement, {
	"passed": (scope.exempt | matching),
	"needs_slot": set(),
	"withheld": {key: "LabelMismatch" | some key, met in answers; met == false},
	"lacking": {},
}) if {
	scope := applies.split(facts, parameters)
	answers := {key: met |
		some key in scope.subject
		met := selector.matches(facts.requests[key].pod.labels, parameters.requires)
	}
	matching := {key | some key, met in answers; met == true}
}
