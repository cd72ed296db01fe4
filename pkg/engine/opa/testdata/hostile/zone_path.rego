# tries: a file in place of a time zone
# outcome: withheld EvaluationFailed
package rule

allow if time.clock([input.now, "../../../../etc/passwd"])[0] == 1
