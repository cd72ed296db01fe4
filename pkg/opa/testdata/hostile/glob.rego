# tries: a pattern that backtracks
# outcome: compile rego_type_error
package rule

allow if glob.match("*a*a*a*a*a*a*a*a*b", [], input.pod.name)
