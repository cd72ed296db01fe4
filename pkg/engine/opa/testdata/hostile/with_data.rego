# tries: the data in place of the input
# outcome: compile podops_contract_error
package rule

allow if input.pod.ready with input as data
