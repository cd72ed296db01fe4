# tries: an error that must not look like an answer
# outcome: withheld EvaluationFailed
package rule

allow if not to_number(input.pod.name) == 1
