# tries: the same by names that the parser does not resolve
# outcome: compile rego_type_error | compile podops_compile_limit
package rule.mine

s0 := input.pod.name

s1 := {"l": data.rule.mine.s0, "r": data.rule.mine["s0"]}
s2 := {"l": data.rule.mine.s1, "r": data.rule.mine["s1"]}
s3 := {"l": data.rule.mine.s2, "r": data.rule.mine["s2"]}
s4 := {"l": data.rule.mine.s3, "r": data.rule.mine["s3"]}
s5 := {"l": data.rule.mine.s4, "r": data.rule.mine["s4"]}
s6 := {"l": data.rule.mine.s5, "r": data.rule.mine["s5"]}
s7 := {"l": data.rule.mine.s6, "r": data.rule.mine["s6"]}
s8 := {"l": data.rule.mine.s7, "r": data.rule.mine["s7"]}
s9 := {"l": data.rule.mine.s8, "r": data.rule.mine["s8"]}
s10 := {"l": data.rule.mine.s9, "r": data.rule.mine["s9"]}
s11 := {"l": data.rule.mine.s10, "r": data.rule.mine["s10"]}
s12 := {"l": data.rule.mine.s11, "r": data.rule.mine["s11"]}
s13 := {"l": data.rule.mine.s12, "r": data.rule.mine["s12"]}
s14 := {"l": data.rule.mine.s13, "r": data.rule.mine["s13"]}
s15 := {"l": data.rule.mine.s14, "r": data.rule.mine["s14"]}
s16 := {"l": data.rule.mine.s15, "r": data.rule.mine["s15"]}

allow if s16 == s15
