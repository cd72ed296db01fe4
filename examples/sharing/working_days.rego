# METADATA
# title: Working days
# description: |
#   A pod goes from Monday to Friday, except on the days of data.config.holidays, in the time zone
#   parameters.time_zone.
package rule.working_days

import data.config.holidays
import data.lib.calendar

# METADATA
# description: Withholds a pod on a day on which its team does not work.
# scope: document
deny contains _message if not _works

# A day that is not known is no working day.
_works if {
	calendar.is_weekday(input.now, input.parameters.time_zone)
	every holiday in holidays.days { holiday != _today }
}

_today := calendar.day(input.now, input.parameters.time_zone)

default _message := "it is not known whether this is a working day"

_message := sprintf("%s is no working day", [_today])
