# tries: two such values of equal form
# outcome: compile podops_compile_limit
package rule

s0 := input.pod.name

t0 := input.pod.name

s1 := {"l": s0, "r": s0}
t1 := {"l": t0, "r": t0}
s2 := {"l": s1, "r": s1}
t2 := {"l": t1, "r": t1}
s3 := {"l": s2, "r": s2}
t3 := {"l": t2, "r": t2}
s4 := {"l": s3, "r": s3}
t4 := {"l": t3, "r": t3}
s5 := {"l": s4, "r": s4}
t5 := {"l": t4, "r": t4}
s6 := {"l": s5, "r": s5}
t6 := {"l": t5, "r": t5}
s7 := {"l": s6, "r": s6}
t7 := {"l": t6, "r": t6}
s8 := {"l": s7, "r": s7}
t8 := {"l": t7, "r": t7}
s9 := {"l": s8, "r": s8}
t9 := {"l": t8, "r": t8}
s10 := {"l": s9, "r": s9}
t10 := {"l": t9, "r": t9}
s11 := {"l": s10, "r": s10}
t11 := {"l": t10, "r": t10}
s12 := {"l": s11, "r": s11}
t12 := {"l": t11, "r": t11}
s13 := {"l": s12, "r": s12}
t13 := {"l": t12, "r": t12}
s14 := {"l": s13, "r": s13}
t14 := {"l": t13, "r": t13}
s15 := {"l": s14, "r": s14}
t15 := {"l": t14, "r": t14}
s16 := {"l": s15, "r": s15}
t16 := {"l": t15, "r": t15}

allow if s16 == t16
