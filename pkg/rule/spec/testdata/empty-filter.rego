# Rule "budget" of PodTransitionRule "web" in namespace "shop".

# METADATA
# description: A rule of kind availablePolicy, compiled. Edit the PodTransitionRule, not this module.
package podops.compiled["shop/web/budget"]

import data.podops.rules.availability

# METADATA
# description: What the rule says.
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
# description: Which of the waiting requests the rule lets pass.
# entrypoint: true
# scope: document
decision := availability.decision(input, parameters)
