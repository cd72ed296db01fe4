# tries: one very long message
# outcome: withheld Denied
package rule

deny contains concat("", ["xxxxxxxxxxxxxxxx" | some i in numbers.range(1, 3000)])
