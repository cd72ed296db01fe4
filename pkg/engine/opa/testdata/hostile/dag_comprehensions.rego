# tries: the same by comprehensions
# outcome: compile rego_type_error | compile podops_compile_limit
package rule

s0 := input.pod.name

s1 := [[x, s0] | x := s0]
s2 := [[x, s1] | x := s1]
s3 := [[x, s2] | x := s2]
s4 := [[x, s3] | x := s3]
s5 := [[x, s4] | x := s4]
s6 := [[x, s5] | x := s5]
s7 := [[x, s6] | x := s6]
s8 := [[x, s7] | x := s7]
s9 := [[x, s8] | x := s8]
s10 := [[x, s9] | x := s9]
s11 := [[x, s10] | x := s10]
s12 := [[x, s11] | x := s11]
s13 := [[x, s12] | x := s12]
s14 := [[x, s13] | x := s13]
s15 := [[x, s14] | x := s14]
s16 := [[x, s15] | x := s15]

allow if s16 == s15
