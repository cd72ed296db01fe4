# METADATA
# title: Quotas
# description: |
#   A bound as a document, {"count": n} or {"percent": p}, as a whole number of pods.
#   Any other document is undefined.
package podops.lib.quota

# METADATA
# description: |
#   An upper bound: a percentage of base is rounded down, but never below 1, since who writes a
#   percentage wants to allow operations. A bound of 0 is a count.
# scope: document
at_most(bound, _) := bound.count

at_most(bound, base) := max([1, floor((base * bound.percent) / 100)])

# METADATA
# description: |
#   A lower bound: a percentage of base is rounded up.
# scope: document
at_least(bound, _) := bound.count

at_least(bound, base) := ceil((base * bound.percent) / 100)
