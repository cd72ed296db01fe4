# tries: the same by patterns, in the wrong order
# outcome: withheld NotAllowed | withheld Timeout | compile podops_compile_limit
package rule

allow if {
	s0 := input.pod.name
	[s16, s15, s14, s13, s12, s11, s10, s9, s8, s7, s6, s5, s4, s3, s2, s1] = [[s15, s15], [s14, s14], [s13, s13], [s12, s12], [s11, s11], [s10, s10], [s9, s9], [s8, s8], [s7, s7], [s6, s6], [s5, s5], [s4, s4], [s3, s3], [s2, s2], [s1, s1], [s0, s0]]
	s16 == s15
}
