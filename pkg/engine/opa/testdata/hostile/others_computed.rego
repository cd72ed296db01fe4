# tries: the rules of others, by a computed name
# outcome: compile podops_contract_error
package rule

allow if data[concat("", ["pod", "ops"])]
