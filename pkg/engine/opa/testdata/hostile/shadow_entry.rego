# tries: the package that asks
# outcome: compile podops_contract_error
package podops.entry

allow := true

decision := {"passed": {"request"}}
