# tries: all paths through a graph, of which there are exponentially many
# outcome: compile rego_type_error
package rule

allow if {
	graph.reachable_paths({"a": ["b", "c"], "b": ["c"], "c": []}, ["a"]) == set()
}
