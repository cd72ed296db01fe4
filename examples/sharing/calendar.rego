# METADATA
# title: Calendar
# description: Days of a time zone. A function is undefined for a time or a time zone that is not known.
package lib.calendar

# METADATA
# description: The day of a time in nanoseconds, such as 2026-12-24.
# scope: document
day(instant, time_zone) := time.format([instant, time_zone, "2006-01-02"])

# METADATA
# description: Whether the day of a time is from Monday to Friday.
# scope: document
is_weekday(instant, time_zone) if {
	time.weekday([instant, time_zone]) in {"Monday", "Tuesday", "Wednesday", "Thursday", "Friday"}
}
