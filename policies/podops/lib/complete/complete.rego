# METADATA
# title: Complete facts
# description: |
#   Whether everything is there that policies/schema/input.json promises. A module of a user is
#   asked only then: "not" in it, or a set of denials, would take a fact that is missing for a "yes".
package podops.lib.complete

# METADATA
# description: |
#   True when no fact is missing, whichever of them a module reads. Undefined otherwise. There may
#   be thousands of pods, so the fields of a document are counted, and not looked at one by one: the
#   schema allows no others than these.
# scope: document
all(facts) if {
	count(facts) == 10
	count(facts.operation) == 4
	count(facts.namespace) == 2
	count(facts.counts) == 4
	_pods([facts.pod])
	_pods(facts.pods)
	count([1 | count(facts.permits[_]) == 2]) == count(facts.permits)
}

_pods(pods) if {
	count([1 | count(pods[_]) == 13]) == count(pods)
	count([1 | count(pods[_].owner) == 3]) == count(pods)
}
