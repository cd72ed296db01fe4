# METADATA
# title: Conventions
# description: |
#   A policy about the Rego files of this repository. input.modules describes each file:
#   {"file", "package", "lines", "longest_line", "titled", "described",
#   "rules": [{"name", "row", "rows", "described"}]}; "titled" and "described" are
#   true if there is METADATA with a title, and with a description. Paths are relative to the directory
#   policies. input.manifests are the names of the sample manifests of the examples.
package conventions

# METADATA
# description: One sentence per breach, starting with the file and, where there is one, the row.
# entrypoint: true
# scope: document
violations contains message if {
	some module in input.modules
	not _at_home(module)
	message := sprintf("%s: package %s does not follow the directory", [module.file, module.package])
}

violations contains message if {
	some module in _sources
	not module.described
	message := sprintf("%s: the package has no METADATA with a description", [module.file])
}

violations contains message if {
	some module in _sources
	not module.titled
	message := sprintf("%s: the package has no METADATA with a title", [module.file])
}

violations contains message if {
	some module in _sources
	not _tested(module)
	message := sprintf("%s: has no tests in a file beside it", [module.file])
}

violations contains message if {
	some module in _sources
	expected := sprintf("%s.yaml", [replace(_example(module), "_", "-")])
	not expected in input.manifests
	message := sprintf("%s: has no manifest config/samples/policies/%s", [module.file, expected])
}

violations contains message if {
	some module in _sources
	some rule in module.rules
	not startswith(rule.name, "_")
	not rule.described
	message := sprintf("%s:%d: public rule %s has no METADATA with a description", [module.file, rule.row, rule.name])
}

violations contains message if {
	some module in input.modules
	endswith(module.file, "_test.rego")
	some rule in module.rules
	not startswith(rule.name, "_")
	not startswith(rule.name, "test_")
	message := sprintf("%s:%d: %s is neither test_... nor _...", [module.file, rule.row, rule.name])
}

violations contains message if {
	some module in input.modules
	some rule in module.rules
	rule.rows > _most.rule_rows
	message := sprintf("%s:%d: %s has more than %d rows", [module.file, rule.row, rule.name, _most.rule_rows])
}

violations contains message if {
	some module in input.modules
	module.lines > _most_lines(module.file)
	message := sprintf("%s: has more than %d lines", [module.file, _most_lines(module.file)])
}

violations contains message if {
	some module in input.modules
	module.longest_line > _most.line_characters
	message := sprintf("%s: has a line of more than %d characters", [module.file, _most.line_characters])
}

_most := {"rule_rows": 30, "line_characters": 120}

_most_lines(file) := 200 if endswith(file, "_test.rego")

_most_lines(file) := 150 if not endswith(file, "_test.rego")

_sources := [module | some module in input.modules; not endswith(module.file, "_test.rego")]

_at_home(module) if {
	not _example(module)
	path := split(module.file, "/")
	directory := concat(".", array.slice(path, 0, count(path) - 1))
	module.package == concat("", [directory, _suffix(module.file)])
}

# Examples are rules of users, and have the package of one.
_at_home(module) if module.package == sprintf("rule.%s%s", [_example(module), _suffix(module.file)])

_example(module) := name if ["examples", name, _] = split(module.file, "/")

_suffix(file) := "_test" if endswith(file, "_test.rego")

_suffix(file) := "" if not endswith(file, "_test.rego")

_tested(module) if {
	beside := concat("", [trim_suffix(module.file, ".rego"), "_test.rego"])
	some other in input.modules
	other.file == beside
	some rule in other.rules
	startswith(rule.name, "test_")
}
