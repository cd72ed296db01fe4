# tries: a package of the library
# outcome: compile podops_contract_error
package podops.rules.labelcheck

allow := true

decision(_, _) := {"passed": {"request"}}
