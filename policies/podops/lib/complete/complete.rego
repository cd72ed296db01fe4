# METADATA
# title: Complete facts
# description: |
#   Whether the input has every field of policies/schema/input.json. A user's module is evaluated
#   only then: a negation in it, or a set of denials, would let a pod pass without the fact.
package podops.lib.complete

# METADATA
# description: |
#   True if no fact that a module can read is missing. Undefined otherwise. There may be thousands of pods, so the
#   fields of a document are counted, and not checked one by one: the schema allows no other fields. Each number
#   below is the number of "required" fields of the document in policies/schema/input.json: 10 at the root, 5 in
#   operation, 5 in its request, 2 in namespace, 6 in owner, 5 in node, 4 in counts, 2 in an item of permits, 14 in
#   $defs/pod, 3 in its owner and 2 in its revision. A test of the Go package policies compares them. The owner and
#   the node at the root are there for modules that read them, and the 6 other fields of a pod are all there for
#   modules that read one of them.
# scope: document
all(facts) if {
	_root(facts, count(facts))
	count(facts.operation) == 5
	count(facts.operation.request) == 5
	count(facts.namespace) == 2
	count(facts.counts) == 4
	_pods([facts.pod], count(facts.pod))
	_pods(facts.pods, count(facts.pod))
	count([1 | count(facts.permits[_]) == 2]) == count(facts.permits)
}

_root(facts, fields) if fields == 10 + count([1 |
	some name, size in {"owner": 6, "node": 5}
	count(facts[name]) == size
])

_pods(pods, fields) if {
	fields in {14, 20}
	count([1 | count(pods[_]) == fields]) == count(pods)
	count([1 | count(pods[_].owner) == 3]) == count(pods)
	count([1 | count(pods[_].revision) == 2]) == count(pods)
}
