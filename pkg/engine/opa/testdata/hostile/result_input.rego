# tries: the whole input as the answer
# outcome: compile podops_contract_error
package rule

allow := input
