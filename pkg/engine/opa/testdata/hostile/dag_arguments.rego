# tries: the same by one function, called again and again
# outcome: withheld Timeout | compile podops_compile_limit
package rule

twice(x) := {"l": x, "r": x}

allow if {
	s0 := input.pod
	s1 := twice(s0)
	s2 := twice(s1)
	s3 := twice(s2)
	s4 := twice(s3)
	s5 := twice(s4)
	s6 := twice(s5)
	s7 := twice(s6)
	s8 := twice(s7)
	s9 := twice(s8)
	s10 := twice(s9)
	s11 := twice(s10)
	s12 := twice(s11)
	s13 := twice(s12)
	s14 := twice(s13)
	s15 := twice(s14)
	s16 := twice(s15)
	s16 == s15
}
