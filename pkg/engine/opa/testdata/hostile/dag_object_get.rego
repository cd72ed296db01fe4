# tries: the same, hidden from the compiler by a builtin
# outcome: withheld NotAllowed | withheld Timeout | compile podops_compile_limit
package rule

s0 := input.pod.name

s1 := object.get({"x": [s0, s0]}, "x", 0)
s2 := object.get({"x": [s1, s1]}, "x", 0)
s3 := object.get({"x": [s2, s2]}, "x", 0)
s4 := object.get({"x": [s3, s3]}, "x", 0)
s5 := object.get({"x": [s4, s4]}, "x", 0)
s6 := object.get({"x": [s5, s5]}, "x", 0)
s7 := object.get({"x": [s6, s6]}, "x", 0)
s8 := object.get({"x": [s7, s7]}, "x", 0)
s9 := object.get({"x": [s8, s8]}, "x", 0)
s10 := object.get({"x": [s9, s9]}, "x", 0)
s11 := object.get({"x": [s10, s10]}, "x", 0)
s12 := object.get({"x": [s11, s11]}, "x", 0)
s13 := object.get({"x": [s12, s12]}, "x", 0)
s14 := object.get({"x": [s13, s13]}, "x", 0)
s15 := object.get({"x": [s14, s14]}, "x", 0)
s16 := object.get({"x": [s15, s15]}, "x", 0)

allow if s16 == s15
