# tries: many texts, each of them as long as allowed
# outcome: withheld Timeout
package rule

allow if {
	long := concat("", ["xxxxxxxxxxxxxxxx" | some i in numbers.range(1, 3000)])
	count([x |
		some i in numbers.range(1, 9999)
		x := concat("", [long, format_int(i, 10)])
	]) == 0
}
