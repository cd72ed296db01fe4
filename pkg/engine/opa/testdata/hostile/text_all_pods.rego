# tries: all pods as one text, a hundred times
# outcome: withheld Timeout
package rule

allow if count([x |
	some i in numbers.range(1, 100)
	x := sprintf("%v %d", [input.pods, i])
]) == 0
