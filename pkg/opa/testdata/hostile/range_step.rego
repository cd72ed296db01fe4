# tries: a range by another name
# outcome: compile rego_type_error
package rule

allow if count(numbers.range_step(1, 1000000000, 1)) == 0
