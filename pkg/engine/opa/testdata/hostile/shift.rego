# tries: a number of two billion bits
# outcome: compile rego_type_error
package rule

allow if bits.lsh(1, 2000000000) == 0
