# tries: a pattern that backtracks
# outcome: withheld NotAllowed
package rule

allow if glob.match("*a*a*a*a*a*a*a*a*b", [], input.pod.name)
