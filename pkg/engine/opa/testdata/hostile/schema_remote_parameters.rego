# tries: a schema from the network, for the parameters
# outcome: compile rego_type_error
# schema: {"$ref": "http://127.0.0.1:1/schema.json"}
package rule

allow if input.parameters.x
