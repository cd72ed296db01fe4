# tries: the facts of all pods as JSON
# outcome: withheld NotAllowed | withheld Timeout
package rule

allow if json.marshal(input) == ""
