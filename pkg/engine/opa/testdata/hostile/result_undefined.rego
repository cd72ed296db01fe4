# tries: no answer
# outcome: withheld NotAllowed
package rule

allow if input.pod.labels.none == input.pod.labels.neither
