# tries: the package of a compiled rule
# outcome: compile podops_contract_error
package podops.compiled["shop/web/mine"]

allow := true
