package podops.lib.enforcement_test

import data.podops.lib.enforcement

_found := {
	"passed": {"a"},
	"takes": {"b"},
	"withheld": {"c": "LabelMismatch"},
	"short": {"b": "NoRoom"},
}

test_enforce_decides_as_found if {
	enforcement.settle("Enforce", _found) == {
		"passed": {"a"},
		"takes": {"b"},
		"withheld": {"c": "LabelMismatch"},
		"would": {},
	}
}

test_warn_and_dry_run_hold_nothing_back_and_say_so if {
	every mode in ["Warn", "DryRun"] {
		enforcement.settle(mode, _found) == {
			"passed": {"a", "b", "c"},
			"takes": set(),
			"withheld": {},
			"would": {"b": "NoRoom", "c": "LabelMismatch"},
		}
	}
}

test_undefined_for_an_unknown_mode if {
	not _settled("", _found)
	not _settled("Ignore", _found)
	_settled("Warn", _found)
}

test_undefined_without_one_of_the_findings if {
	every field in ["passed", "takes", "withheld"] {
		not _settled("Enforce", object.remove(_found, [field]))
		not _settled("Warn", object.remove(_found, [field]))
	}
	not _settled("Warn", object.remove(_found, ["short"]))
}

_settled(mode, found) if is_object(enforcement.settle(mode, found))
