# METADATA
# title: Ticket required
# description: |
#   A pod passes if the annotation parameters.annotation contains a ticket: a text that matches the
#   regular expression parameters.pattern from beginning to end. The annotation is on the pod that
#   goes, so it is written when the operation is due, and not into the template of new pods.
package rule.ticket_required

# METADATA
# description: True if the pod has a ticket.
# scope: document
allow if regex.match(sprintf("^(?:%s)$", [input.parameters.pattern]), _ticket)

# METADATA
# description: The ticket that is not accepted, or the missing annotation.
# scope: document
default reason := "the ticket of the pod is not known"

reason := sprintf("the ticket '%s' does not match %s", [_ticket, input.parameters.pattern])

reason := sprintf("pod %s has no ticket in its annotation %s", [input.pod.name, input.parameters.annotation]) if {
	not _ticket
}

_ticket := input.pod.annotations[input.parameters.annotation]
