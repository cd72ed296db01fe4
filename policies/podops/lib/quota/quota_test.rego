package podops.lib.quota_test

import data.podops.lib.quota

test_counts_stay_as_they_are if {
	quota.at_most({"count": 7}, 3) == 7
	quota.at_least({"count": 7}, 3) == 7
	quota.at_least({"count": 0}, 3) == 0
}

test_at_most_rounds_down_but_not_to_zero if {
	quota.at_most({"percent": 25}, 12) == 3
	quota.at_most({"percent": 25}, 11) == 2
	quota.at_most({"percent": 25}, 3) == 1
	quota.at_most({"percent": 1}, 0) == 1
	quota.at_most({"percent": 100}, 12) == 12
}

test_at_least_rounds_up if {
	quota.at_least({"percent": 75}, 12) == 9
	quota.at_least({"percent": 75}, 11) == 9
	quota.at_least({"percent": 1}, 3) == 1
	quota.at_least({"percent": 0}, 3) == 0
	quota.at_least({"percent": 100}, 3) == 3
}

test_other_documents_are_undefined if {
	every bound in [{}, {"pct": 5}, null, 5] {
		not _is_upper(bound)
		not _is_lower(bound)
	}
	_is_upper({"percent": 5})
	_is_lower({"percent": 5})
}

_is_upper(bound) if is_number(quota.at_most(bound, 10))

_is_lower(bound) if is_number(quota.at_least(bound, 10))
