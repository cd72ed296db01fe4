# Rule "anything" of PodTransitionRule "web" in namespace "shop".

# METADATA
# description: A rule of kind labelCheck, compiled. Edit the PodTransitionRule, not this module.
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
