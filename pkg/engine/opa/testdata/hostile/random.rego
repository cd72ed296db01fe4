# tries: a random number
# outcome: compile rego_type_error
package rule

allow if rand.intn("x", 2) == 0
