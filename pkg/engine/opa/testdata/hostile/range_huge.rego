# tries: an array of a billion numbers
# outcome: withheld Timeout
package rule

allow if count(numbers.range(1, 1000000000)) == 0
