# tries: a rule that refers to itself
# outcome: compile rego_recursion_error
package rule

allow if not p

p if not q

q if p
