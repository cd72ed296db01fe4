# Rule "ready" of PodTransitionRule "web" in namespace "shop".

# METADATA
# description: |
#   A rule of kind rego, for review: edit the PodTransitionRule, not this module. The manager evaluates
#   data.podops.rules.custom.decision(input, input.rule, "allow") with these parameters as input.rule;
#   rules with the same data.rule share the program.
package podops.compiled["shop/web/ready"]

import data.podops.rules.custom

# METADATA
# description: The fields of the rule.
# scope: document
parameters := {
	"name": "ready",
	"stage": "PostCheck",
	"enforcement": "Enforce",
}

# METADATA
# description: The value of input.parameters in the user's module, data.rule.
# scope: document
arguments := {}

# METADATA
# description: The verdicts for the waiting requests.
# entrypoint: true
# scope: document
decision := answer if {
	answer := custom.decision(input, parameters, "allow") with input.parameters as arguments
}
