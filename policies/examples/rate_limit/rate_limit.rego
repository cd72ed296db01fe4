# METADATA
# title: Rate limit
# description: |
#   Of the pods that the PodTransitionRule selects, at most parameters.permits get a permit in any
#   parameters.minutes minutes.
package rule.rate_limit

# METADATA
# description: Withholds a pod until the permits of the window are below the limit.
# scope: document
deny contains _answer if not _open

# With an unknown time or window no permit would be recent.
_open if {
	is_number(input.now - _window)
	every permit in input.permits { is_number(permit.at) }
	count(_recent) < input.parameters.permits
}

_recent := sort([permit.at |
	some permit in input.permits
	permit.at > input.now - _window
])

_window := input.parameters.minutes * 60000000000

default _answer := "the permits given last are not known"

# The window has a free permit again when all but permits - 1 of the recent ones have left it.
_answer := {
	"message": sprintf("%d permits in %d minutes are given", [limit, input.parameters.minutes]),
	"retry_after_seconds": ceil(((leaves + _window) - input.now) / 1000000000),
} if {
	limit := input.parameters.permits
	leaves := _recent[count(_recent) - limit]
}
