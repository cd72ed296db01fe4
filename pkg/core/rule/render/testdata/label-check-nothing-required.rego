# Rule "anything" of PodTransitionRule "web" in namespace "shop".

# METADATA
# description: |
#   A rule of kind labelCheck, for review: edit the PodTransitionRule, not this module. The manager evaluates
#   data.podops.rules.labelcheck.decision(input, input.rule) with these parameters as input.rule;
#   rules of this kind share the program.
package podops.compiled["shop/web/anything"]

import data.podops.rules.labelcheck

# METADATA
# description: The fields of the rule.
# scope: document
parameters := {
	"name": "anything",
	"stage": "PreCheck",
	"enforcement": "Enforce",
	"requires": {},
}

# METADATA
# description: The verdicts for the waiting requests.
# entrypoint: true
# scope: document
decision := labelcheck.decision(input, parameters)
