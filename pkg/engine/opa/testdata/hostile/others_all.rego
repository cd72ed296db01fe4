# tries: all data
# outcome: compile podops_contract_error
package rule

deny contains data
