# tries: a random name
# outcome: compile rego_type_error
package rule

allow if uuid.rfc4122("x") != ""
