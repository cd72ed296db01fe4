# tries: all paths through the input, in pairs
# outcome: withheld Timeout
package rule

allow if {
	x := input.pods[_][_]
	y := input.pods[_][_]
	x == [y]
}
