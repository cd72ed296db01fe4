# Rule "rate" of PodTransitionRule "web" in namespace "shop".

# METADATA
# description: A rule of kind rego, compiled. Edit the PodTransitionRule, not this module.
package podops.compiled["shop/web/rate"]

import data.podops.rules.custom

# METADATA
# description: What the rule says.
# scope: document
parameters := {
	"name": "rate",
	"stage": "PreCheck",
	"enforcement": "Enforce",
}

# METADATA
# description: What the module of the user, data.rule, reads as input.parameters.
# scope: document
arguments := {
	"minutes": 10,
	"names": {
		"a": "\u2028",
		"z": null,
	},
	"permits": 3,
	"zones": [
		"a",
		"b",
	],
}

# METADATA
# description: Which of the waiting requests the rule lets pass.
# entrypoint: true
# scope: document
decision := answer if {
	answer := custom.decision(input, parameters, "allow") with input.parameters as arguments
}
