# METADATA
# title: Label selectors
# description: |
#   A Kubernetes LabelSelector as a document:
#   {"matchLabels": {key: value}, "matchExpressions": [{"key", "operator", "values"}]}.
#   Both fields are optional; an empty selector matches everything.
package podops.lib.selector

# METADATA
# description: |
#   Whether labels match the selector: true or false. Undefined if there are no labels
#   (not even empty ones) or if a requirement is malformed. Undefined is not false: a filter that is
#   false exempts the pod from the rule.
# scope: document
matches(labels, selector) := answers == {true} if {
	is_object(labels)
	expressions := object.get(selector, "matchExpressions", [])
	met := [_meets(labels, expression) | some expression in expressions]
	count(met) == count(expressions)
	required := object.get(selector, "matchLabels", {})
	answers := {object.subset(labels, required)} | {answer | some answer in met}
}

_meets(labels, expression) := _one_of(labels, expression) if expression.operator == "In"

_meets(labels, expression) := _one_of(labels, expression) == false if expression.operator == "NotIn"

_meets(labels, expression) := _present(labels, expression) if expression.operator == "Exists"

_meets(labels, expression) := _present(labels, expression) == false if expression.operator == "DoesNotExist"

# An absent label is in no list: values are strings, never null.
_one_of(labels, expression) := object.get(labels, expression.key, null) in expression.values

_present(labels, expression) := object.get(labels, expression.key, null) != null
