# tries: all paths through the input, by a builtin
# outcome: compile rego_type_error
package rule

allow if {
	walk(input, [path, value])
	walk(input, [value, path])
}
