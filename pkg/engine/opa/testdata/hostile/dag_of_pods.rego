# tries: copies of all pods, below the limit of weight, compared
# outcome: withheld NotAllowed | withheld Timeout
package rule

others := [pod | some pod in input.pods]

allow if {
	[input.pods, input.pods, input.pods, input.pods] == [others, others, others, array.slice(others, 1, 999)]
}
