# tries: another value for a rule of the library
# outcome: compile podops_contract_error
package rule

allow if input.pod.ready with data.podops.lib.complete.all as true
