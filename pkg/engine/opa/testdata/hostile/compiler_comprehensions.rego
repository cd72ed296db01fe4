# tries: nested comprehensions, which triple the time of the compiler
# outcome: compile podops_compile_limit
package rule

allow if 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == [1 | 1 == 1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]
