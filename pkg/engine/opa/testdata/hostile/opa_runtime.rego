# tries: the environment of the process
# outcome: compile rego_type_error
package rule

allow if opa.runtime().env.PATH != ""
