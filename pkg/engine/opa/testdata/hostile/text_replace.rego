# tries: a text that becomes its square
# outcome: withheld Timeout
package rule

allow if {
	x0 := concat("", ["xxxxxxxxxxxxxxxx" | some i in numbers.range(1, 1000)])
	replace(x0, "x", x0) == "x"
}
