# tries: functions that call each other on very many paths
# outcome: compile rego_compile_error
package rule

f0(a, b, c, d) := 1

f1(a, b, c, d) := 1 if {
	f0([a], b, c, d)
	f0(a, [b], c, d)
	f0(a, b, [c], d)
	f0(a, b, c, [d])
}
f2(a, b, c, d) := 1 if {
	f1([a], b, c, d)
	f1(a, [b], c, d)
	f1(a, b, [c], d)
	f1(a, b, c, [d])
}
f3(a, b, c, d) := 1 if {
	f2([a], b, c, d)
	f2(a, [b], c, d)
	f2(a, b, [c], d)
	f2(a, b, c, [d])
}
f4(a, b, c, d) := 1 if {
	f3([a], b, c, d)
	f3(a, [b], c, d)
	f3(a, b, [c], d)
	f3(a, b, c, [d])
}
f5(a, b, c, d) := 1 if {
	f4([a], b, c, d)
	f4(a, [b], c, d)
	f4(a, b, [c], d)
	f4(a, b, c, [d])
}
f6(a, b, c, d) := 1 if {
	f5([a], b, c, d)
	f5(a, [b], c, d)
	f5(a, b, [c], d)
	f5(a, b, c, [d])
}
f7(a, b, c, d) := 1 if {
	f6([a], b, c, d)
	f6(a, [b], c, d)
	f6(a, b, [c], d)
	f6(a, b, c, [d])
}
f8(a, b, c, d) := 1 if {
	f7([a], b, c, d)
	f7(a, [b], c, d)
	f7(a, b, [c], d)
	f7(a, b, c, [d])
}
f9(a, b, c, d) := 1 if {
	f8([a], b, c, d)
	f8(a, [b], c, d)
	f8(a, b, [c], d)
	f8(a, b, c, [d])
}
f10(a, b, c, d) := 1 if {
	f9([a], b, c, d)
	f9(a, [b], c, d)
	f9(a, b, [c], d)
	f9(a, b, c, [d])
}
f11(a, b, c, d) := 1 if {
	f10([a], b, c, d)
	f10(a, [b], c, d)
	f10(a, b, [c], d)
	f10(a, b, c, [d])
}
f12(a, b, c, d) := 1 if {
	f11([a], b, c, d)
	f11(a, [b], c, d)
	f11(a, b, [c], d)
	f11(a, b, c, [d])
}
f13(a, b, c, d) := 1 if {
	f12([a], b, c, d)
	f12(a, [b], c, d)
	f12(a, b, [c], d)
	f12(a, b, c, [d])
}
f14(a, b, c, d) := 1 if {
	f13([a], b, c, d)
	f13(a, [b], c, d)
	f13(a, b, [c], d)
	f13(a, b, c, [d])
}
f15(a, b, c, d) := 1 if {
	f14([a], b, c, d)
	f14(a, [b], c, d)
	f14(a, b, [c], d)
	f14(a, b, c, [d])
}
f16(a, b, c, d) := 1 if {
	f15([a], b, c, d)
	f15(a, [b], c, d)
	f15(a, b, [c], d)
	f15(a, b, c, [d])
}

allow if f16(1, 1, 1, 1)
