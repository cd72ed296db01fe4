# tries: a loop that hides in functions
# outcome: withheld Timeout
package rule

allow if count(pairs(input.pods)) == 0

pairs(pods) := [y | some p in pods; some y in names(p, pods)]

names(p, pods) := [q.name | some q in pods; some r in pods; r.name != p.name]
