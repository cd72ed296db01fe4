# METADATA
# title: Label selectors
# description: |
#   A Kubernetes LabelSelector as a document:
#   {"matchLabels": {key: value}, "matchExpressions": [{"key", "operator", "values"}]}.
#   Both fields may be left out; an empty selector matches everything.
package podops.lib.selector

# METADATA
# description: |
#   Whether labels meet the selector: true or false. Undefined when there are no labels
#   (not even empty ones) or when a requirement is malformed. Undefined is not a "no":
#   for a filter a "no" would open the door.
# scope: document
matches(labels, selector) := answers == {true} if {
	is_object(labels)
	expressions := object.get(selector, "matchExpressions", [])
	met := [_meets(labels, expression) | some expression in expressions]
	count(met) == count(expressions)
	wanted := object.get(selector, "matchLabels", {})
	answers := {object.subset(labels, wanted)} | {answer | some answer in met}
}

_meets(labels, expression) := _one_of(labels, expression) if expression.operator == "In"

_meets(labels, expression) := _one_of(labels, expression) == false if expression.operator == "NotIn"

_meets(labels, expression) := _present(labels, expression) if expression.operator == "Exists"

_meets(labels, expression) := _present(labels, expression) == false if expression.operator == "DoesNotExist"

# An absent label is in no list: values are strings, never null.
_one_of(labels, expression) := object.get(labels, expression.key, null) in expression.values

_present(labels, expression) := object.get(labels, expression.key, null) != null
