# tries: a product of all pods with themselves, three times over
# outcome: withheld Timeout
package rule

allow if {
	count([1 |
		some a in input.pods
		some b in input.pods
		some c in input.pods
		a.node == b.node
		b.node == c.node
	]) == 0
}
