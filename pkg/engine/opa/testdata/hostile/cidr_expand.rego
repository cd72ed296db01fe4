# tries: all addresses of a large network
# outcome: compile rego_type_error
package rule

allow if count(net.cidr_expand("0.0.0.0/4")) == 0
