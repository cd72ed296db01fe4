# tries: a request to the metadata service
# outcome: compile rego_type_error
package rule

allow if http.send({"method": "get", "url": "http://169.254.169.254/"}).status_code == 200
