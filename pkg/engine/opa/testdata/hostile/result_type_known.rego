# tries: an answer that can never be a yes
# outcome: compile podops_contract_error
package rule

allow := "true"
