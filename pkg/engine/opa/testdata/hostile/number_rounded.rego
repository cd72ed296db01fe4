# tries: a number with a large exponent, made of small ones and written out
# outcome: withheld Timeout
package rule

allow if {
	x0 := 1e300
	x1 := x0 * x0
	x2 := x1 * x1
	x3 := x2 * x2
	x4 := x3 * x3
	x5 := x4 * x4
	x6 := x5 * x5
	x7 := x6 * x6
	x8 := x7 * x7
	x9 := x8 * x8
	x10 := x9 * x9
	x11 := x10 * x10
	x12 := x11 * x11
	x13 := x12 * x12
	x14 := x13 * x13
	x15 := x14 * x14
	x16 := x15 * x15
	x17 := x16 * x16
	x18 := x17 * x17
	x19 := x18 * x18
	x20 := x19 * x19
	floor(x20) == 0
}
