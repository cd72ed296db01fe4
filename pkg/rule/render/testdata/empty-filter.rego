# Rule "budget" of PodTransitionRule "web" in namespace "shop".

# METADATA
# description: A rule of kind availablePolicy, compiled. Edit the PodTransitionRule, not this module.
package podops.compiled["shop/web/budget"]

import data.podops.rules.availability

# METADATA
# description: The fields of the rule.
# scope: document
parameters := {
	"name": "budget",
	"stage": "PreCheck",
	"enforcement": "Warn",
	"min_available": {
		"count": 8,
	},
}

# METADATA
# description: The verdicts for the waiting requests.
# entrypoint: true
# scope: document
decision := availability.decision(input, parameters)
