# tries: a range by another name
# outcome: withheld Timeout
package rule

allow if count(numbers.range_step(1, 1000000000, 1)) == 0
