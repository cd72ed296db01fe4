package rule.no_downgrade_test

import data.rule.no_downgrade

# A module that names one of these fields has all of them.
_details := {"resources": [], "restarts": 0, "conditions": {}, "started": 0, "ready_since": 0}

_image(container, tag) := {"container": container, "registry": "", "repository": "", "tag": tag, "digest": ""}

_pod(name, state, tag) := object.union(_details, {
	"name": name,
	"images": [_image("proxy", "v0.1.0"), _image("app", tag)],
	"owner": {"uid": "u1"},
	"revision": {"state": state},
	"permitted": false,
})

_waiting(pod, pods) := {"parameters": {"container": "app"}, "pod": pod, "pods": pods}

_outdated(pods) := _waiting(_pod("web-0", "Outdated", "v1.9.0"), pods)

_new(name, version) := _pod(name, "Newest", version)

_foreign(version) := object.union(_new("db-0", version), {"owner": {"uid": "u2"}})

_permitted := object.union(_pod("web-3", "Outdated", "v1.9.0"), {"permitted": true})

_withheld := {
	"an older version": _outdated([_new("web-1", "v1.10.0"), _new("web-2", "v1.8.0")]),
	"a version before its release": _outdated([_new("web-1", "v1.9.0-rc.1")]),
	"a version that is none": _outdated([_new("web-1", "latest")]),
	"no version": _waiting(_pod("web-0", "Outdated", "latest"), [_new("web-1", "v1.10.0")]),
	"no new pod": _outdated([_pod("web-1", "Outdated", "v1.9.0"), _foreign("v2.0.0")]),
	"the last rollout was given up, and a pod is on its way": _outdated([
		_pod("web-1", "Abandoned", "v1.8.0"),
		_permitted,
	]),
	"the last rollout was given up, for an older version": _outdated([
		_pod("web-1", "Abandoned", "v1.8.0"),
		_new("web-2", "v1.7.0"),
	]),
	"an unknown revision": _waiting(_pod("web-0", "Unknown", "v1.9.0"), [_new("web-1", "v1.10.0")]),
}

test_a_pod_goes_for_a_newer_version if {
	no_downgrade.allow with input as _outdated([_new("web-1", "v1.10.0"), _pod("web-2", "Outdated", "v1.9.0")])
	no_downgrade.allow with input as _outdated([_new("web-1", "1.9.0"), _foreign("v0.1.0")])
}

test_a_pod_waits[name] if {
	some name, facts in _withheld
	not no_downgrade.allow with input as facts
}

test_pods_of_the_newest_and_of_an_abandoned_revision_go if {
	every state in ["Newest", "Abandoned"] {
		no_downgrade.allow with input as _waiting(_pod("web-0", state, "v1.9.0"), [_new("web-1", "v1.8.0")])
	}
}

test_one_pod_goes_after_a_rollout_that_was_given_up if {
	pods := [_pod("web-1", "Abandoned", "v1.8.0"), _pod("web-2", "Outdated", "v1.9.0"), _foreign("v0.1.0")]
	no_downgrade.allow with input as _outdated(pods)
}

_reason(name) := reason if reason := no_downgrade.reason with input as _withheld[name]

test_the_reason_names_the_older_pods if {
	_reason("an older version") == "version v1.9.0 is newer than that of: web-2"
	_reason("a version that is none") == "version v1.9.0 is newer than that of: web-1"
}

test_the_reason_states_what_cannot_be_compared if {
	_reason("no version") == "pod web-0 has no version as the image tag of app"
	_reason("no new pod") == "there is no pod of the newest revision to compare with"
	_reason("an unknown revision") == "the revisions of the pods are not known"
}

test_without_facts_no_pod_passes if {
	every fact in ["parameters", "pod", "pods"] {
		not no_downgrade.allow with input as object.remove(_outdated([_new("web-1", "v1.10.0")]), [fact])
	}
}
