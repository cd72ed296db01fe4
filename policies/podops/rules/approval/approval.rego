# METADATA
# title: approval
# description: |
#   A request passes when its pod runs the revision of its workload already, or when enough users have approved
#   that revision and none has denied it. The decisions that have not expired are a fact.
package podops.rules.approval

import data.podops.lib.applies
import data.podops.lib.enforcement

# METADATA
# description: |
#   The decision for all requests of facts, see the package enforcement. A request whose approval cannot be read
#   is in no part of it.
#   Undefined without parameters.min_approvals and parameters.allow_author.
# scope: document
decision(facts, parameters) := enforcement.apply(parameters.enforcement, {
	"passed": (scope.exempt | approved),
	"needs_slot": set(),
	"withheld": object.union(denied, missing),
	"lacking": {},
}) if {
	is_number(parameters.min_approvals)
	is_boolean(parameters.allow_author)
	scope := applies.split(facts, parameters)
	approvals := {key: facts.requests[key].approval |
		some key in scope.subject
		_is_complete(facts.requests[key].approval)
	}
	denied := {key: "RevisionDenied" | some key, approval in approvals; _is_denied(approval)}
	approved := {key |
		some key, approval in approvals
		_is_approved(approval, parameters)
	}
	missing := {key: "NotApproved" | some key in ((object.keys(approvals) - approved) - object.keys(denied))}
}

_is_complete(approval) if {
	is_boolean(approval.current)
	is_string(approval.revision)
	is_string(approval.author)
	is_array(approval.approved_by)
	is_array(approval.denied_by)
}

_is_denied(approval) if {
	approval.current == false
	count(approval.denied_by) > 0
}

_is_approved(approval, _) if {
	approval.current == true
	approval.revision != ""
}

_is_approved(approval, parameters) if {
	approval.current == false
	approval.revision != ""
	count(approval.denied_by) == 0
	approvers := {user | some user in approval.approved_by} - _excluded(approval, parameters.allow_author)
	count(approvers) >= parameters.min_approvals + _unknown_authors(approval, parameters.allow_author)
}

_excluded(_, true) := set()

_excluded(approval, false) := {approval.author}

# Any of the approvers may be the author while the author is not known.
_unknown_authors(_, true) := 0

_unknown_authors(approval, false) := 0 if approval.author != ""

_unknown_authors(approval, false) := 1 if approval.author == ""
