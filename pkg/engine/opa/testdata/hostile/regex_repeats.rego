# tries: an expression of few characters that compiles to a million steps
# outcome: withheld EvaluationFailed
package rule

allow if regex.match("((a{30}){30}){30}", input.pod.name)
