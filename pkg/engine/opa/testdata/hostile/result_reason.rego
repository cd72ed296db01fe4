# tries: a very long reason
# outcome: withheld NotAllowed
package rule

allow if input.pod.labels.none == "x"

reason := concat("", ["xxxxxxxxxxxxxxxx" | some i in numbers.range(1, 3000)])
