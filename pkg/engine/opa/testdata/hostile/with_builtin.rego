# tries: another meaning for a builtin
# outcome: withheld NotAllowed
package rule

allow if startswith(input.pod.name, "x") with startswith as endswith
