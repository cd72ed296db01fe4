# tries: nested loops over numbers
# outcome: withheld Timeout
package rule

allow if {
	some a in numbers.range(1, 9999)
	some b in numbers.range(1, 9999)
	a * b == -1
}
