# tries: many long messages
# outcome: withheld Denied | withheld Timeout
package rule

deny contains message if {
	some i in numbers.range(1, 300)
	message := sprintf("%0200d", [i])
}
