package rule.team_list_test

import data.rule.team_list

_in(labels) := {
	"parameters": {"label": "team", "teams": ["checkout", "search"]},
	"namespace": {"name": "shop", "labels": labels},
}

_withheld := {
	"another team": _in({"team": "billing"}),
	"an empty team": _in({"team": ""}),
	"no team": _in({"stage": "checkout"}),
}

test_the_pods_of_a_team_in_the_list_go if {
	team_list.allow with input as _in({"team": "checkout"})
	team_list.allow with input as _in({"team": "search"})
}

test_other_pods_wait[name] if {
	some name, facts in _withheld
	not team_list.allow with input as facts
}

test_the_reason_names_the_team_and_the_list if {
	team_list.reason == "team billing is not in the list: checkout, search" with input as _withheld["another team"]
	team_list.reason == "namespace shop has no label team" with input as _withheld["no team"]
}

test_without_facts_no_pod_passes if {
	every fact in ["parameters", "namespace"] {
		facts := object.remove(_in({"team": "checkout"}), [fact])
		not team_list.allow with input as facts
		team_list.reason == "the team of the namespace is not known" with input as facts
	}
}
