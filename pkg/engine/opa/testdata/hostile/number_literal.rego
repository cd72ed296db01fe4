# tries: a number of a hundred million digits, in eleven characters
# outcome: compile rego_parse_error
package rule

allow if floor(1e100000000) == 0
