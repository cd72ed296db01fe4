package podops.lib.enforcement_test

import data.podops.lib.enforcement

_found := {
	"passed": {"a"},
	"needs_slot": {"b"},
	"withheld": {"c": "LabelMismatch"},
	"lacking": {"b": "NoRoom"},
}

test_enforce_decides_as_found if {
	enforcement.apply("Enforce", _found) == {
		"passed": {"a"},
		"needs_slot": {"b"},
		"withheld": {"c": "LabelMismatch"},
		"would": {},
	}
}

test_warn_and_dry_run_withhold_nothing_and_return_would if {
	every mode in ["Warn", "DryRun"] {
		enforcement.apply(mode, _found) == {
			"passed": {"a", "b", "c"},
			"needs_slot": set(),
			"withheld": {},
			"would": {"b": "NoRoom", "c": "LabelMismatch"},
		}
	}
}

test_undefined_for_an_unknown_mode if {
	not _applied("", _found)
	not _applied("Ignore", _found)
	_applied("Warn", _found)
}

test_undefined_without_one_of_the_findings if {
	every field in ["passed", "needs_slot", "withheld"] {
		not _applied("Enforce", object.remove(_found, [field]))
		not _applied("Warn", object.remove(_found, [field]))
	}
	not _applied("Warn", object.remove(_found, ["lacking"]))
}

_applied(mode, found) if is_object(enforcement.apply(mode, found))
