# Rule "min-available" of PodTransitionRule "web" in namespace "shop".

# METADATA
# description: A rule of kind availablePolicy, compiled. Edit the PodTransitionRule, not this module.
package podops.compiled["shop/web/min-available"]

import data.podops.rules.availability

# METADATA
# description: The fields of the rule.
# scope: document
parameters := {
	"name": "min-available",
	"stage": "PreCheck",
	"enforcement": "Enforce",
	"min_available": {
		"percent": 0,
	},
}

# METADATA
# description: The verdicts for the waiting requests.
# entrypoint: true
# scope: document
decision := availability.decision(input, parameters)
