# tries: a number out of a text
# outcome: withheld EvaluationFailed
package rule

allow if floor(to_number(concat("", ["1e", "100000000"]))) == 0
