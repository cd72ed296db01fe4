# Rule "free" of PodTransitionRule "web" in namespace "shop".

# METADATA
# description: A rule of kind rego, compiled. Edit the PodTransitionRule, not this module.
package podops.compiled["shop/web/free"]

import data.podops.rules.custom

# METADATA
# description: What the rule says.
# scope: document
parameters := {
	"name": "free",
	"stage": "PreCheck",
	"enforcement": "Enforce",
}

# METADATA
# description: What the module of the user, data.rule, reads as input.parameters.
# scope: document
arguments := {}

# METADATA
# description: Which of the waiting requests the rule lets pass.
# entrypoint: true
# scope: document
decision := answer if {
	answer := custom.decision(input, parameters, "deny") with input.parameters as arguments
}
