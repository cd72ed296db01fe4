# METADATA
# title: Owner by pattern
# description: |
#   A pod passes if its owner, written as Deployment/web, matches one of the patterns
#   parameters.owners. In a pattern, * stands for any characters except "/", and {a,b} for a or b.
#   A pod without an owner waits.
package rule.owner_pattern

# METADATA
# description: True if a pattern matches the owner of the pod.
# scope: document
allow if {
	some pattern in input.parameters.owners
	glob.match(pattern, ["/"], _owner)
}

# METADATA
# description: The owner, and the patterns.
# scope: document
default reason := "the owner of the pod is not known"

reason := sprintf("the owner %s matches none of: %s", [_owner, concat(", ", input.parameters.owners)])

reason := sprintf("pod %s has no owner", [input.pod.name]) if input.pod.owner.name == ""

_owner := sprintf("%s/%s", [input.pod.owner.kind, input.pod.owner.name]) if input.pod.owner.name != ""
