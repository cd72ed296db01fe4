# METADATA
# title: webhook
# description: |
#   A request passes if an external service has approved it. Rego does not call the service: the
#   state of a call is a fact, and the requests that need a call are part of the decision.
package podops.rules.webhook

import data.podops.lib.applies
import data.podops.lib.enforcement

# METADATA
# description: |
#   The decision for all requests of facts, see the package enforcement, with calls: the keys of
#   the requests that need a call of the service. A request without a task, or with one that cannot
#   be read, is in no part of it: it is not known whether the service was called already.
#   A rule that is not enforced calls the service, too, since a trial without answers shows nothing;
#   the code of a request is "WebhookPending" until there is an answer.
#   Undefined without a failure policy.
# scope: document
decision(facts, parameters) := object.union(applied, {"calls": calls}) if {
	scope := applies.split(facts, parameters)
	tasks := {key: facts.requests[key].task |
		some key in scope.subject
		_is_complete(facts.requests[key].task)
	}
	approved := {key | some key, task in tasks; task.state == "Approved"}
	ignored := _ignored(tasks, parameters.failure_policy)
	withheld := {key: _code(tasks[key]) | some key in (object.keys(tasks) - ignored)}
	applied := enforcement.apply(parameters.enforcement, {
		"passed": ((scope.exempt | approved) | ignored),
		"needs_slot": set(),
		"withheld": withheld,
		"lacking": {},
	})

	# The service is not called again for requests that the failure policy lets pass: each of these
	# calls would withhold a permitted pod that waits for another rule.
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
	task.class in _answer_classes
}

_code(task) := "WebhookFailed" if {
	task.state == "Failed"
	count({task.class} - _answer_classes) == 1
}

# Classes of answers without approval: the service rejected the pod, gave up, or took too long.
_answer_classes := {"Rejected", "Stopped", "Expired"}

# Classes of failed calls. Answers are not among them, and neither are calls that PodOps itself
# could not make because it was busy or stopped: it makes them later.
_failure_classes := {
	"Unreachable", "Refused", "ConnectionBroken", "DNS", "Timeout", "BreakerOpen",
	"TLS", "TLSUntrusted", "TLSExpired", "TLSNameMismatch",
	"AddressForbidden", "RedirectRefused", "Secret", "Configuration",
	"HTTPStatus", "TooLarge", "BadResponse",
}

_ignored(_, "Fail") := set()

_ignored(tasks, "Ignore") := {key |
	some key, task in tasks
	task.state == "Failed"
	task.class in _failure_classes

	# A failed call does not overrule an earlier answer of the service.
	task.answered == false
}
