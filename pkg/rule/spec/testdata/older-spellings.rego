# Rule "older" of PodTransitionRule "web" in namespace "shop".

# METADATA
# description: A rule of kind availablePolicy, compiled. Edit the PodTransitionRule, not this module.
package podops.compiled["shop/web/older"]

import data.podops.rules.availability

# METADATA
# description: What the rule says.
# scope: document
parameters := {
	"name": "older",
	"stage": "PostCheck",
	"enforcement": "Enforce",
	"max_unavailable": {
		"percent": 50,
	},
}

# METADATA
# description: Which of the waiting requests the rule lets pass.
# entrypoint: true
# scope: document
decision := availability.decision(input, parameters)
