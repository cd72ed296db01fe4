# tries: another value for a rule of its own
# outcome: compile rego_compile_error
package rule

p if false

allow if p with data.rule.p as true
