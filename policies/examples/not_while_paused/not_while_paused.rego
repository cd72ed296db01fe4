# METADATA
# title: Not while paused
# description: |
#   A pod passes unless its Deployment is paused, or its Job suspended. An administrator who pauses a
#   Deployment to look at its pods keeps them: node upgrades and other deletes wait until it is resumed.
package rule.not_while_paused

# METADATA
# description: True if the workload of the pod is not paused.
# scope: document
allow if input.owner.paused == false

# METADATA
# description: The workload that is paused.
# scope: document
default reason := "whether the workload is paused is not known"

reason := sprintf("%s %s is paused", [input.owner.kind, input.owner.name]) if input.owner.paused == true
