# tries: a format that prints one argument many times
# outcome: withheld NotAllowed
package rule

allow if sprintf("%[1]s%[1]s%[1]s%[1]s%[1]s%[1]s%[1]s%[1]s", [input.pod.name]) == ""
