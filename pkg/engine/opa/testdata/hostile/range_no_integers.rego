# tries: a range to a number beyond all integers
# outcome: withheld Timeout
package rule

allow if count(numbers.range(1, 1e300)) == 0
