# Rule "all.Options_1" of PodTransitionRule "web" in namespace "shop".

# METADATA
# description: |
#   A rule of kind labelCheck, for review: edit the PodTransitionRule, not this module. The manager evaluates
#   data.podops.rules.labelcheck.decision(input, input.rule) with these parameters as input.rule;
#   rules of this kind share the program.
package podops.compiled["shop/web/all.Options_1"]

import data.podops.rules.labelcheck

# METADATA
# description: The fields of the rule.
# scope: document
parameters := {
	"name": "all.Options_1",
	"stage": "PostCheck",
	"enforcement": "DryRun",
	"conditions": [
		"delete",
		"update",
	],
	"filter": {
		"matchLabels": {
			"canary": "true",
		},
	},
	"requires": {
		"matchLabels": {
			"ready": "",
		},
	},
}

# METADATA
# description: The verdicts for the waiting requests.
# entrypoint: true
# scope: document
decision := labelcheck.decision(input, parameters)
