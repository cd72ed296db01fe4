package rule.backup_running_test

import data.rule.backup_running

_pod(name, component) := {"name": name, "labels": {"component": component}}

_unlabelled(name) := {"name": name, "labels": {}}

_waiting(pods) := {
	"parameters": {"label": "component", "value": "backup"},
	"pod": _pod("db-0", "server"),
	"pods": pods,
}

_withheld := {
	"a backup": _waiting([_pod("backup-1", "backup"), _pod("db-1", "server")]),
	"a backup, and a pod of no component": object.union(
		_waiting([_pod("backup-1", "backup")]),
		{"pod": {"labels": {"component": ""}}},
	),
}

test_a_pod_goes_without_a_backup if {
	backup_running.allow with input as _waiting([])
	backup_running.allow with input as _waiting([_pod("db-1", "server"), _unlabelled("db-2")])
}

test_a_pod_waits_during_a_backup[name] if {
	some name, facts in _withheld
	not backup_running.allow with input as facts
}

test_the_reason_names_the_pod if {
	backup_running.reason == "a backup runs: backup-1" with input as _withheld["a backup"]
}

test_the_reason_names_five_at_most if {
	pods := [_pod(name, "backup") | some name in ["1", "2", "3", "4", "5", "6"]]
	backup_running.reason == "a backup runs: 1, 2, 3, 4, 5" with input as _waiting(pods)
}

test_a_pod_of_the_backup_goes if {
	backup_running.allow with input as object.union(_withheld["a backup"], {"pod": _pod("backup-0", "backup")})
}

test_without_facts_no_pod_passes if {
	not backup_running.allow with input as object.remove(_waiting([]), ["pods"])
	backup_running.reason == "it is not known whether a backup runs" with input as object.remove(_waiting([]), ["pods"])
	not backup_running.allow with input as _waiting([{"name": "db-1"}])
}
