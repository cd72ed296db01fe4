# tries: ten thousand long messages
# outcome: withheld Denied
package rule

deny contains message if {
	some i in numbers.range(1, 3000)
	message := sprintf("%0200d", [i])
}
