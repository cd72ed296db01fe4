# tries: a long array in thousands of copies
# outcome: withheld Timeout
package rule

allow if {
	long := numbers.range(1, 9999)
	count([x |
		some i in long
		x := array.reverse(array.slice(long, i, 9999))
	]) == 0
}
