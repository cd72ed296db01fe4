# tries: the same as the answer
# outcome: withheld Denied | withheld Timeout | compile podops_compile_limit
package rule

s0 := input.pod.name

s1 := {"l": s0, "r": s0}
s2 := {"l": s1, "r": s1}
s3 := {"l": s2, "r": s2}
s4 := {"l": s3, "r": s3}
s5 := {"l": s4, "r": s4}
s6 := {"l": s5, "r": s5}
s7 := {"l": s6, "r": s6}
s8 := {"l": s7, "r": s7}
s9 := {"l": s8, "r": s8}
s10 := {"l": s9, "r": s9}
s11 := {"l": s10, "r": s10}
s12 := {"l": s11, "r": s11}
s13 := {"l": s12, "r": s12}
s14 := {"l": s13, "r": s13}
s15 := {"l": s14, "r": s14}
s16 := {"l": s15, "r": s15}

deny contains {"message": "x", "details": s16}
