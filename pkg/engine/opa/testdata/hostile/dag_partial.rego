# tries: the same by sets that many rules add to
# outcome: compile rego_type_error | compile podops_compile_limit
package rule

s0 contains input.pod.name

s1 contains [x, x] if some x in s0
s2 contains [x, x] if some x in s1
s3 contains [x, x] if some x in s2
s4 contains [x, x] if some x in s3
s5 contains [x, x] if some x in s4
s6 contains [x, x] if some x in s5
s7 contains [x, x] if some x in s6
s8 contains [x, x] if some x in s7
s9 contains [x, x] if some x in s8
s10 contains [x, x] if some x in s9
s11 contains [x, x] if some x in s10
s12 contains [x, x] if some x in s11
s13 contains [x, x] if some x in s12
s14 contains [x, x] if some x in s13
s15 contains [x, x] if some x in s14
s16 contains [x, x] if some x in s15

allow if s16 == s15
