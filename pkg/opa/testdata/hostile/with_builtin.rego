# tries: another meaning for a builtin
# outcome: compile rego_compile_error
package rule

allow if startswith(input.pod.name, "x") with startswith as endswith
