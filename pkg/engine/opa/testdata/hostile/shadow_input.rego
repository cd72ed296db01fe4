# tries: a rule with the name of the input
# outcome: compile rego_compile_error
package rule

input := {"pod": {"ready": true}}

allow if input.pod.ready
