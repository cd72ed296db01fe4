# tries: a name that the network resolves
# outcome: compile rego_type_error
package rule

allow if count(net.lookup_ip_addr("example.com")) > 0
