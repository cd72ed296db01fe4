package conventions_test

import data.conventions

_rule := {"name": "matches", "row": 9, "rows": 5, "described": true}

_source := {
	"file": "podops/lib/x/x.rego",
	"package": "podops.lib.x",
	"lines": 40,
	"longest_line": 100,
	"titled": true,
	"described": true,
	"rules": [_rule],
}

_test := {
	"file": "podops/lib/x/x_test.rego",
	"package": "podops.lib.x_test",
	"lines": 40,
	"longest_line": 100,
	"titled": false,
	"described": false,
	"rules": [{"name": "test_x", "row": 3, "rows": 5}, {"name": "_x", "row": 9, "rows": 5}],
}

_violations(source, test) := found if {
	found := conventions.violations with input as {"modules": [source, test]}
}

_with_rule(rule) := object.union(_source, {"rules": [object.union(_rule, rule)]})

test_a_tidy_package_has_no_violation if {
	_violations(_source, _test) == set()
}

test_a_package_elsewhere_than_its_directory if {
	_violations(object.union(_source, {"package": "podops.x"}), _test) == {sprintf(
		"%s: package podops.x does not follow the directory",
		[_source.file],
	)}
	_violations(_source, object.union(_test, {"package": "podops.lib.x"})) == {sprintf(
		"%s: package podops.lib.x does not follow the directory",
		[_test.file],
	)}
}

test_packages_and_public_rules_need_metadata if {
	_violations(object.union(_source, {"described": false}), _test) == {sprintf(
		"%s: the package has no METADATA with a description",
		[_source.file],
	)}
	_violations(object.union(_source, {"titled": false}), _test) == {sprintf(
		"%s: the package has no METADATA with a title",
		[_source.file],
	)}
	_violations(_with_rule({"described": false}), _test) == {sprintf(
		"%s:9: public rule matches has no METADATA with a description",
		[_source.file],
	)}
	_violations(_with_rule({"name": "_own", "described": false}), _test) == set()
}

test_every_file_has_tests if {
	none := {"podops/lib/x/x.rego: has no tests in a file beside it"}
	conventions.violations == none with input as {"modules": [_source]}
	_violations(_source, object.union(_test, {"rules": [{"name": "_x", "row": 9, "rows": 5}]})) == none
}

_example := object.union(_source, {"file": "examples/one_x/one_x.rego", "package": "rule.one_x"})

_example_test := object.union(_test, {"file": "examples/one_x/one_x_test.rego", "package": "rule.one_x_test"})

test_an_example_has_the_package_of_a_rule_and_a_manifest if {
	tidy := {"modules": [_example, _example_test], "manifests": ["one-x.yaml"]}
	conventions.violations == set() with input as tidy
	conventions.violations == {sprintf(
		"%s: has no manifest config/samples/policies/one-x.yaml",
		[_example.file],
	)} with input as object.union(tidy, {"manifests": ["one-y.yaml"]})
	conventions.violations == {sprintf(
		"%s: package examples.one_x does not follow the directory",
		[_example.file],
	)} with input as object.union(tidy, {"modules": [
		object.union(_example, {"package": "examples.one_x"}),
		_example_test,
	]})
}

test_names_in_test_files if {
	_violations(_source, object.union(_test, {"rules": [
		{"name": "fixture", "row": 3, "rows": 1},
		{"name": "test_x", "row": 5, "rows": 1},
	]})) == {sprintf(
		"%s:3: fixture is neither test_... nor _...",
		[_test.file],
	)}
}

test_sizes if {
	_violations(_with_rule({"rows": 31}), _test) == {"podops/lib/x/x.rego:9: matches has more than 30 rows"}
	_violations(object.union(_source, {"lines": 151}), _test) == {"podops/lib/x/x.rego: has more than 150 lines"}
	_violations(_source, object.union(_test, {"lines": 201})) == {"podops/lib/x/x_test.rego: has more than 200 lines"}
	_violations(object.union(_source, {"longest_line": 121}), _test) == {sprintf(
		"%s: has a line of more than 120 characters",
		[_source.file],
	)}
}
