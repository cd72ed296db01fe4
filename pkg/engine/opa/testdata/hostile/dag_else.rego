# tries: the same in branches that are never taken
# outcome: withheld NotAllowed | withheld Timeout | compile podops_compile_limit
package rule

s0 := input.pod.name

s1 := 1 if {
	input.now == 1
} else := [s0, s0]

s2 := 1 if {
	input.now == 1
} else := [s1, s1]

s3 := 1 if {
	input.now == 1
} else := [s2, s2]

s4 := 1 if {
	input.now == 1
} else := [s3, s3]

s5 := 1 if {
	input.now == 1
} else := [s4, s4]

s6 := 1 if {
	input.now == 1
} else := [s5, s5]

s7 := 1 if {
	input.now == 1
} else := [s6, s6]

s8 := 1 if {
	input.now == 1
} else := [s7, s7]

s9 := 1 if {
	input.now == 1
} else := [s8, s8]

s10 := 1 if {
	input.now == 1
} else := [s9, s9]

s11 := 1 if {
	input.now == 1
} else := [s10, s10]

s12 := 1 if {
	input.now == 1
} else := [s11, s11]

s13 := 1 if {
	input.now == 1
} else := [s12, s12]

s14 := 1 if {
	input.now == 1
} else := [s13, s13]

s15 := 1 if {
	input.now == 1
} else := [s14, s14]

s16 := 1 if {
	input.now == 1
} else := [s15, s15]

allow if s16 == s15
