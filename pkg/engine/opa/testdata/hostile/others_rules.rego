# tries: the rules of others
# outcome: compile podops_contract_error
package rule

allow if data.podops.compiled["shop/web/other"].parameters
