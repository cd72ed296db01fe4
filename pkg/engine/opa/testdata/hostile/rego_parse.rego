# tries: the parser, at evaluation
# outcome: compile rego_type_error
package rule

allow if rego.parse_module("a.rego", "package a").rules == []
