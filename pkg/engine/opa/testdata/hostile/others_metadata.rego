# tries: the annotations of modules
# outcome: compile rego_type_error
package rule

allow if rego.metadata.chain()[0].path == []
