# tries: as much output as possible
# outcome: withheld NotAllowed
package rule

allow if {
	some pod in input.pods
	print(input, pod)
	pod.name == "none"
}
