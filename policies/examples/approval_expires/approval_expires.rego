# METADATA
# title: Approval that expires
# description: |
#   A pod passes while its approval is valid: until the time in its annotation
#   parameters.annotation, such as 2026-01-31T18:00:00Z. A time that is more than parameters.hours
#   hours ahead approves nothing, so that no approval lasts for ever.
package rule.approval_expires

# METADATA
# description: True while the approval is valid.
# scope: document
allow if {
	input.now < _until
	_until <= input.now + (input.parameters.hours * 3600000000000)
}

# METADATA
# description: What the approval lacks.
# scope: document
default reason := "the approval of the pod is not known"

reason := sprintf("pod %s has no annotation %s with a time", [input.pod.name, input.parameters.annotation]) if not _text

reason := sprintf("the approval '%s' is no time such as 2026-01-31T18:00:00Z", [_text]) if not _until

reason := sprintf("the approval ended at %s", [_text]) if _until <= input.now

reason := sprintf("the approval until %s is for more than %d hours", [_text, hours]) if {
	hours := input.parameters.hours
	_until > input.now + (hours * 3600000000000)
}

_text := input.pod.annotations[input.parameters.annotation]

_until := time.parse_rfc3339_ns(_text) if regex.match(_form, _text)

_form := `^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(Z|[+-][01]\d:[0-5]\d)$`
