# tries: an expression that is slow on a long text
# outcome: withheld Timeout
package rule

allow if {
	long := concat("", ["aaaaaaaaaaaaaaaa" | some i in numbers.range(1, 3000)])
	regex.match("(a?){200}(a*)*b", long)
}
