# tries: a set that grows for as long as it may
# outcome: withheld Timeout
package rule

allow if {
	count({[a, b, c] |
		some a in numbers.range(1, 500)
		some b in numbers.range(1, 500)
		some c in numbers.range(1, 500)
	}) == 0
}
