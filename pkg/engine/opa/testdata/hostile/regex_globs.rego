# tries: an intersection of expressions
# outcome: compile rego_type_error
package rule

allow if regex.globs_match("a*b*c*d*e*[a-z]+.*", "[a-z]+.*a*b*c*d*e*")
