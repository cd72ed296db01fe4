# tries: an evaluation of all rules for each pod and each other pod
# outcome: withheld Timeout
package rule

fit if {
	some p in input.pods
	p.name == input.pod.node
}

allow if {
	some a in input.pods
	some b in input.pods
	fit with input.pod as {"node": [a.name, b.name]}
}
