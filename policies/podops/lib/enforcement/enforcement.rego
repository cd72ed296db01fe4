# METADATA
# title: Enforcement
# description: |
#   Converts the findings of a rule to its decision: a rule that is not enforced (Warn, DryRun)
#   withholds nothing, and returns the requests that it would withhold.
package podops.lib.enforcement

# METADATA
# description: |
#   The decision of a rule: {"passed": keys, "needs_slot": keys, "withheld": {key: code},
#   "would": {key: code}}. found has the same passed, needs_slot and withheld, and in lacking the
#   codes of the requests in needs_slot that would wait for a slot: {} while slots are free.
#   Undefined for an unknown mode.
# scope: document
apply("Enforce", found) := {
	"passed": found.passed,
	"needs_slot": found.needs_slot,
	"withheld": found.withheld,
	"would": {},
}

apply(mode, found) := {
	"passed": passed,
	"needs_slot": set(),
	"withheld": {},
	"would": object.union(found.withheld, found.lacking),
} if {
	mode in {"Warn", "DryRun"}
	passed := (found.passed | found.needs_slot) | object.keys(found.withheld)
}
