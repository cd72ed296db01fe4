# METADATA
# title: Enforcement
# description: |
#   What a rule finds becomes what it decides: a rule that is not enforced (Warn, DryRun)
#   holds nothing back, and says what it would have held back.
package podops.lib.enforcement

# METADATA
# description: |
#   The decision of a rule: {"passed": keys, "takes": keys, "withheld": {key: code},
#   "would": {key: code}}. found has passed, takes and withheld alike, and the code "short"
#   of the requests in takes: why they would wait for a slot, {} while slots are left.
#   Undefined for an unknown mode.
# scope: document
settle("Enforce", found) := {
	"passed": found.passed,
	"takes": found.takes,
	"withheld": found.withheld,
	"would": {},
}

settle(mode, found) := {
	"passed": passed,
	"takes": set(),
	"withheld": {},
	"would": object.union(found.withheld, found.short),
} if {
	mode in {"Warn", "DryRun"}
	passed := (found.passed | found.takes) | object.keys(found.withheld)
}
