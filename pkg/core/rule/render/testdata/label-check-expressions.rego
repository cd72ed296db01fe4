# Rule "fit" of PodTransitionRule "web" in namespace "shop".

# METADATA
# description: |
#   A rule of kind labelCheck, for review: edit the PodTransitionRule, not this module. The manager evaluates
#   data.podops.rules.labelcheck.decision(input, input.rule) with these parameters as input.rule;
#   rules of this kind share the program.
package podops.compiled["shop/web/fit"]

import data.podops.rules.labelcheck

# METADATA
# description: The fields of the rule.
# scope: document
parameters := {
	"name": "fit",
	"stage": "PostCheck",
	"enforcement": "Enforce",
	"requires": {
		"matchLabels": {
			"app": "shop",
			"tier": "web",
		},
		"matchExpressions": [
			{
				"key": "zone",
				"operator": "In",
				"values": [
					"b",
					"a",
				],
			},
			{
				"key": "app.custom/forbidden",
				"operator": "DoesNotExist",
			},
		],
	},
}

# METADATA
# description: The verdicts for the waiting requests.
# entrypoint: true
# scope: document
decision := labelcheck.decision(input, parameters)
