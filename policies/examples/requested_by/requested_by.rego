# METADATA
# title: Requested by
# description: |
#   An operation begins for the users in parameters.users, for the members of the groups in
#   parameters.groups, and for the actors in parameters.actors, such as the controller of the
#   workload in a rollout. It does not begin for a requester that is not known.
package rule.requested_by

# METADATA
# description: True if the requester may begin operations.
# scope: document
allow if _request.user in input.parameters.users

allow if {
	some group in _request.groups
	group in input.parameters.groups
}

allow if _request.actor in input.parameters.actors

# METADATA
# description: The requester, and the groups that may begin operations.
# scope: document
default reason := "the requester is not known"

reason := sprintf("%s (%s) is in none of the groups: %s", [
	_request.user, _request.actor,
	concat(", ", input.parameters.groups),
]) if {
	_request.user != ""
}

_request := input.operation.request
