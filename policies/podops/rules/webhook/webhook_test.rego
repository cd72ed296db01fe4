package podops.rules.webhook_test

import data.podops.rules.webhook

_parameters := {
	"name": "approved",
	"stage": "PreCheck",
	"enforcement": "Enforce",
	"failure_policy": "Fail",
}

_ignoring := object.union(_parameters, {"failure_policy": "Ignore"})

_request(task) := {
	"pod": {"labels": {"app": "web"}, "skip_rules": [], "available": true},
	"operation": {"id": "a", "type": "update"},
	"task": task,
}

_task(state, class, due) := {"state": state, "class": class, "retry_due": due, "answered": false}

_answered(task) := object.union(task, {"answered": true})

_requests := {
	"new": _request(_task("None", "", false)),
	"request": _request(_task("Calling", "", false)),
	"worked on": _request(_task("Polling", "", false)),
	"good": _request(_task("Approved", "", false)),
	"refused": _request(_task("Failed", "Rejected", false)),
	"refused long ago": _request(_task("Failed", "Rejected", true)),
	"dead": _request(_task("Failed", "Refused", false)),
	"dead long ago": _request(_task("Failed", "Refused", true)),
}

_facts(requests) := {"stage": "PreCheck", "requests": requests}

_decision(requests, parameters) := webhook.decision(_facts(requests), parameters)

# The decision for one request with a task.
_of(task, parameters) := _decision({"k": _request(task)}, parameters)

test_passes_approved_requests_and_returns_codes_for_others if {
	_decision(_requests, _parameters) == {
		"passed": {"good"},
		"needs_slot": set(),
		"withheld": {
			"new": "WebhookPending",
			"request": "WebhookPending",
			"worked on": "WebhookProcessing",
			"refused": "WebhookRejected",
			"refused long ago": "WebhookRejected",
			"dead": "WebhookFailed",
			"dead long ago": "WebhookFailed",
		},
		"would": {},
		"calls": {"new", "refused long ago", "dead long ago"},
	}
}

test_ignore_passes_failures_and_does_not_call_again if {
	decision := _decision(_requests, _ignoring)
	decision.passed == {"good", "dead", "dead long ago"}
	decision.calls == {"new", "refused long ago"}
}

_failures := {
	"Unreachable", "Refused", "ConnectionBroken", "DNS", "Timeout", "BreakerOpen",
	"TLS", "TLSUntrusted", "TLSExpired", "TLSNameMismatch",
	"AddressForbidden", "RedirectRefused", "Secret", "Configuration",
	"HTTPStatus", "TooLarge", "BadResponse",
}

# PodOps could not make the call.
_not_called := {"Busy", "Canceled", "Interrupted", "Internal", "SomethingNew", ""}

_answers := {"Rejected", "Stopped", "Expired"}

test_every_class_has_a_code if {
	every class in _failures | _not_called {
		_of(_task("Failed", class, false), _parameters).withheld == {"k": "WebhookFailed"}
	}
	every class in _answers {
		_of(_task("Failed", class, false), _parameters).withheld == {"k": "WebhookRejected"}
	}
}

test_ignore_passes_when_the_service_failed if {
	every class in _failures {
		_of(_task("Failed", class, false), _ignoring).passed == {"k"}
	}
}

test_ignore_does_not_pass_a_rejection_or_a_pending_call if {
	every class in _not_called | _answers {
		_of(_task("Failed", class, false), _ignoring).passed == set()
	}
}

# Otherwise a user could turn a rejection into a pass by breaking the connection.
test_ignore_does_not_overrule_an_answer if {
	every class in (_failures | _not_called) | _answers {
		decision := _of(_answered(_task("Failed", class, true)), _ignoring)
		decision.passed == set()
		decision.calls == {"k"}
	}
}

# The class of a failure does not matter while the service is called again.
test_ignore_waits_for_the_first_answer if {
	every state in ["None", "Calling", "Polling"] {
		_of(_task(state, "", false), _ignoring).passed == set()
		_of(_task(state, "Refused", true), _ignoring).passed == set()
	}
}

test_calls_for_no_request_that_the_rule_does_not_apply_to if {
	decision := _decision(_requests, object.union(_parameters, {"conditions": ["delete"]}))
	decision.passed == object.keys(_requests)
	decision.withheld == {}
	decision.calls == set()
}

test_rules_that_are_not_enforced_call_and_return_codes if {
	every mode in ["Warn", "DryRun"] {
		_decision(_requests, object.union(_parameters, {"enforcement": mode})) == {
			"passed": object.keys(_requests),
			"needs_slot": set(),
			"withheld": {},
			"would": {
				"new": "WebhookPending",
				"request": "WebhookPending",
				"worked on": "WebhookProcessing",
				"refused": "WebhookRejected",
				"refused long ago": "WebhookRejected",
				"dead": "WebhookFailed",
				"dead long ago": "WebhookFailed",
			},
			"calls": {"new", "refused long ago", "dead long ago"},
		}
	}
}

test_decides_about_nothing if {
	_decision({}, _parameters) == {"passed": set(), "needs_slot": set(), "withheld": {}, "would": {}, "calls": set()}
}

_paths := {
	"pod", "pod/labels", "pod/skip_rules", "operation", "operation/type",
	"task", "task/state", "task/class", "task/retry_due", "task/answered",
}

# The facts that each request needs to pass or to be called for, with any task.
test_nothing_passes_when_a_fact_is_missing if {
	every parameters in [_parameters, _ignoring, object.union(_parameters, {"enforcement": "DryRun"})] {
		every request in _requests {
			every path in _paths {
				decision := _decision({"k": json.remove(request, [path])}, parameters)
				decision.passed == set()
				decision.calls == set()
			}
		}
	}
}

test_nothing_passes_with_an_unreadable_task if {
	every parameters in [_parameters, _ignoring] {
		every task in [
			null, {},
			_task("approved", "", false),
			_task("", "", false),
			_task(true, "", false),
			_task("Failed", null, true),
			_task("Failed", "Refused", "true"),
			object.union(_task("Failed", "Refused", true), {"answered": "no"}),
		] {
			decision := _of(task, parameters)
			decision.passed == set()
			decision.calls == set()
		}
	}
}

test_one_broken_request_leaves_the_others_alone if {
	decision := _decision(object.union(_requests, {"broken": {}}), _parameters)
	decision.passed == {"good"}
	count(decision.withheld) == 7
}

test_undefined_without_what_the_whole_batch_needs if {
	every field in ["stage", "requests"] {
		not _decided(object.remove(_facts(_requests), [field]), _parameters)
	}
	every parameter in ["name", "stage", "enforcement", "failure_policy"] {
		not _decided(_facts(_requests), object.remove(_parameters, [parameter]))
	}
	not _decided(_facts(_requests), object.union(_parameters, {"failure_policy": "Maybe"}))
	_decided(_facts(_requests), _parameters)
}

_decided(facts, parameters) if is_object(webhook.decision(facts, parameters))
