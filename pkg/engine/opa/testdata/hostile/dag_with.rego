# tries: the same by a rule with another input
# outcome: withheld NotAllowed | withheld Timeout | compile podops_compile_limit
package rule

pair := [input.pod, input.pod]

allow if {
	s0 := input.pod.name
	s1 := pair with input.pod as s0
	s2 := pair with input.pod as s1
	s3 := pair with input.pod as s2
	s4 := pair with input.pod as s3
	s5 := pair with input.pod as s4
	s6 := pair with input.pod as s5
	s7 := pair with input.pod as s6
	s8 := pair with input.pod as s7
	s9 := pair with input.pod as s8
	s10 := pair with input.pod as s9
	s11 := pair with input.pod as s10
	s12 := pair with input.pod as s11
	s13 := pair with input.pod as s12
	s14 := pair with input.pod as s13
	s15 := pair with input.pod as s14
	s16 := pair with input.pod as s15
	s16 == s15
}
