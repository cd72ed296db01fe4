# tries: a package too far below
# outcome: compile podops_contract_error
package rule.a.b

allow := true
