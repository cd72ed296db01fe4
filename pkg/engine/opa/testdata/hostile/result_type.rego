# tries: an answer that only looks like a yes
# outcome: withheld WrongType
package rule

allow := object.get(input.parameters, "answer", "true")
