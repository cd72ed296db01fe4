# METADATA
# title: Change freeze
# description: |
#   No pod passes in a window of parameters.weekly or on a day of parameters.dates. Both are
#   local times of parameters.time_zone. A weekly window whose "to" is not after
#   its "from" ends on the next day; dates include their last day.
#
#   Everything is computed in local time as if it were UTC, since windows are local times; only
#   the end is converted to a point in time.
package rule.change_freeze

# METADATA
# description: Withholds a pod during a freeze, with the time of its end.
# scope: document
deny contains _answer if not _open

_open if _free(_wall)

_answer := "it is not known whether there is a change freeze" if {
	not _wall
} else := {
	"message": sprintf("change freeze until %s (%s)", [shown, input.parameters.time_zone]),
	"retry_after_seconds": ceil((_instant(_end) - input.now) / 1000000000),
} if {
	shown := time.format([_end, "UTC", "2006-01-02 15:04"])
} else := {"message": "change freeze with no end in sight", "retry_after_seconds": 3600}

# A time outside of every window is free: a window that cannot be read frees nothing.
_free(wall) if {
	every window in input.parameters.weekly {
		every day in [_midnight(wall) - _day, _midnight(wall)] { _outside(wall, window, day) }
	}
	every dates in input.parameters.dates { _clear(wall, dates) }
}

_outside(_, window, day) if {
	is_array(window.days)
	not _is_on(window, day)
}

_outside(wall, window, day) if wall < day + _time(window.from)

_outside(wall, window, day) if wall >= day + _length(window)

_is_on(window, day) if time.weekday(day) in window.days

# From midnight of the day on which the window begins.
_length(window) := _time(window.to) if _time(window.to) > _time(window.from)

_length(window) := _time(window.to) + _day if _time(window.to) <= _time(window.from)

_clear(wall, dates) if wall < _date(dates.from)

_clear(wall, dates) if wall >= _date(dates.to) + _day

# The first end of a window that no other window covers, in the week after now and after the next
# three dates that end, since windows may follow each other.
_end := min([end |
	some end in array.concat(_weekly_ends, _date_ends)
	end > _wall
	_free(end)
])

_date_ends := sort([end |
	some dates in input.parameters.dates
	end := _date(dates.to) + _day
	end > _wall
])

_weekly_ends := [end |
	some base in array.concat([_wall], array.slice(_date_ends, 0, 3))
	some ahead in numbers.range(-1, 7)
	day := _midnight(base) + (ahead * _day)
	some window in input.parameters.weekly
	_is_on(window, day)
	end := day + _length(window)
]

_day := 86400000000000

_wall := _wall_at(input.now)

_wall_at(instant) := time.parse_rfc3339_ns(time.format([instant, input.parameters.time_zone, "2006-01-02T15:04:05Z"]))

# The point in time of a local time. The offset is looked up twice since the first one is that of a
# moment some hours away, which may be on the other side of a clock change.
_instant(wall) := near - (_wall_at(near) - wall) if {
	near := wall - (_wall_at(wall) - wall)
}

_midnight(wall) := wall - (wall % _day)

_date(text) := time.parse_rfc3339_ns(sprintf("%sT00:00:00Z", [text]))

_time("24:00") := _day

_time(text) := time.parse_rfc3339_ns(sprintf("1970-01-01T%s:00Z", [text])) if text != "24:00"
