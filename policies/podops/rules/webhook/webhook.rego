# METADATA
# title: webhook
# description: |
#   A request passes when an external service has approved it. Rego does not call the service: how
#   far a call has come is a fact, and which requests need one is part of the decision.
package podops.rules.webhook

import data.podops.lib.applies
import data.podops.lib.enforcement

# METADATA
# description: |
#   The decision for all requests of facts, see the package enforcement, and calls: the keys of
#   those that the service has to be called about. A request without a task, or with one that cannot
#   be read, is in no part of it: whether the service was called already is not known.
#   A rule that is not enforced calls too, since a trial without an answer shows nothing; what it
#   would withhold says "WebhookPending" until there is one.
#   Undefined without a failure policy.
# scope: document
decision(facts, parameters) := object.union(settled, {"calls": calls}) if {
	asked := applies.split(facts, parameters)
	tasks := {key: facts.requests[key].task |
		some key in asked.subject
		_is_complete(facts.requests[key].task)
	}
	approved := {key | some key, task in tasks; task.state == "Approved"}
	ignored := _ignored(tasks, parameters.failure_policy)
	withheld := {key: _code(tasks[key]) | some key in (object.keys(tasks) - ignored)}
	settled := enforcement.settle(parameters.enforcement, {
		"passed": ((asked.exempt | approved) | ignored),
		"takes": set(),
		"withheld": withheld,
		"short": {},
	})

	# What the failure policy lets pass is not asked about again: a pod that may go, and waits for
	# something else, would be held back by each of these calls.
	calls := {key | some key, _ in withheld; _needs_call(tasks[key])}
}

_is_complete(task) if {
	is_string(task.state)
	is_string(task.class)
	is_boolean(task.retry_due)
	is_boolean(task.answered)
}

_needs_call(task) if task.state == "None"

_needs_call(task) if {
	task.state == "Failed"
	task.retry_due
}

_code(task) := "WebhookPending" if task.state in {"None", "Calling"}

_code(task) := "WebhookProcessing" if task.state == "Polling"

_code(task) := "WebhookRejected" if {
	task.state == "Failed"
	task.class in _answers
}

_code(task) := "WebhookFailed" if {
	task.state == "Failed"
	count({task.class} - _answers) == 1
}

# The service was asked, and did not approve: it said no, gave up, or took too long.
_answers := {"Rejected", "Stopped", "Expired"}

# The service could not be asked, or not understood. An answer is none of these, and neither is what
# PodOps itself was too busy or too short-lived to do: it does that later.
_failures := {
	"Unreachable", "Refused", "ConnectionBroken", "DNS", "Timeout", "BreakerOpen",
	"TLS", "TLSUntrusted", "TLSExpired", "TLSNameMismatch",
	"AddressForbidden", "RedirectRefused", "Secret", "Configuration",
	"HTTPStatus", "TooLarge", "BadResponse",
}

_ignored(_, "Fail") := set()

_ignored(tasks, "Ignore") := {key |
	some key, task in tasks
	task.state == "Failed"
	task.class in _failures

	# A failure to reach the service does not overrule what it has answered before.
	task.answered == false
}
