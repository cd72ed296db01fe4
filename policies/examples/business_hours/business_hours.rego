# METADATA
# title: Business hours
# description: |
#   A pod passes on the weekdays parameters.days, from parameters.from to parameters.to, in local
#   time of parameters.time_zone: when its team is at work. "to" is after "from". A pod that is not
#   available passes at any time: it serves no traffic, and replacing it may be the remedy.
package rule.business_hours

# METADATA
# description: True during business hours, and for a pod that serves no traffic.
# scope: document
allow if {
	time.weekday([input.now, input.parameters.time_zone]) in input.parameters.days

	# Times of the same form compare like their texts.
	input.parameters.from <= _time
	_time < input.parameters.to
}

allow if input.pod.available == false

# METADATA
# description: The business hours.
# scope: document
default reason := "the business hours are not known"

reason := sprintf("pods go at %s-%s on %s (%s)", [hours.from, hours.to, concat(", ", hours.days), hours.time_zone]) if {
	hours := input.parameters
}

_time := time.format([input.now, input.parameters.time_zone, "15:04"])
