# tries: another clock than input.now
# outcome: compile rego_type_error
package rule

allow if time.now_ns() > 0
