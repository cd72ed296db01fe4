# tries: yes and no at once
# outcome: withheld EvaluationFailed
package rule

allow := input.pod.ready

allow := x if some x in [true, false]
