# Rule "max-unavailable" of PodTransitionRule "web" in namespace "shop".

# METADATA
# description: |
#   A rule of kind availablePolicy, for review: edit the PodTransitionRule, not this module. The manager evaluates
#   data.podops.rules.availability.decision(input, input.rule) with these parameters as input.rule;
#   rules of this kind share the program.
package podops.compiled["shop/web/max-unavailable"]

import data.podops.rules.availability

# METADATA
# description: The fields of the rule.
# scope: document
parameters := {
	"name": "max-unavailable",
	"stage": "PreCheck",
	"enforcement": "Enforce",
	"max_unavailable": {
		"percent": 25,
	},
}

# METADATA
# description: The verdicts for the waiting requests.
# entrypoint: true
# scope: document
decision := availability.decision(input, parameters)
