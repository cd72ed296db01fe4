# Rule "approved" of PodTransitionRule "web" in namespace "shop".

# METADATA
# description: |
#   A rule of kind approval, for review: edit the PodTransitionRule, not this module. The manager evaluates
#   data.podops.rules.approval.decision(input, input.rule) with these parameters as input.rule;
#   rules of this kind share the program.
package podops.compiled["shop/web/approved"]

import data.podops.rules.approval

# METADATA
# description: The fields of the rule.
# scope: document
parameters := {
	"name": "approved",
	"stage": "PreCheck",
	"enforcement": "Enforce",
	"min_approvals": 1,
	"allow_author": true,
}

# METADATA
# description: The verdicts for the waiting requests.
# entrypoint: true
# scope: document
decision := approval.decision(input, parameters)
