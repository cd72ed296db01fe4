# tries: a text split into its characters, again and again
# outcome: withheld Timeout
package rule

allow if {
	long := concat("", ["xxxxxxxxxxxxxxxx" | some i in numbers.range(1, 600)])
	count([x |
		some i in numbers.range(1, 9999)
		x := split(concat("", [long, format_int(i, 10)]), "")
	]) == 0
}
