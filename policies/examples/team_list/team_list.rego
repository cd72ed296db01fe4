# METADATA
# title: List of teams
# description: |
#   A pod passes if its team is in the list parameters.teams. The team is the label
#   parameters.label of the namespace. The pods of a namespace without that label wait.
package rule.team_list

# METADATA
# description: True if the team of the namespace is in the list.
# scope: document
allow if _team in input.parameters.teams

# METADATA
# description: The team that is not in the list.
# scope: document
default reason := "the team of the namespace is not known"

reason := sprintf("team %s is not in the list: %s", [_team, concat(", ", input.parameters.teams)])

reason := sprintf("namespace %s has no label %s", [input.namespace.name, input.parameters.label]) if not _team

_team := input.namespace.labels[input.parameters.label]
