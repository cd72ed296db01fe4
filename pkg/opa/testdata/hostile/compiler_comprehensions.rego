# tries: nested comprehensions, which triple the time of the compiler
# outcome: compile rego_compile_error
package rule

allow if 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == 1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]
