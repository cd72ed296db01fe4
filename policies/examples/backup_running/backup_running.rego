# METADATA
# title: Backup running
# description: |
#   No pod passes while a backup runs: while another pod that the PodTransitionRule selects has the
#   label parameters.label with the value parameters.value. The pods of the Job that makes the
#   backup carry that label, and the label kusionstack.io/control like all pods that rules know of.
#   Finished pods do not count. The pods of the backup pass themselves.
package rule.backup_running

# METADATA
# description: True if no other pod makes a backup.
# scope: document
allow if {
	every other in input.pods { _harmless(other) }
}

# Undefined, and not "no backup", if the labels of a pod or a parameter are missing.
_harmless(other) if object.get(other.labels, input.parameters.label, "") != input.parameters.value

allow if input.pod.labels[input.parameters.label] == input.parameters.value

# METADATA
# description: The first five pods that make a backup.
# scope: document
default reason := "it is not known whether a backup runs"

reason := sprintf("a backup runs: %s", [concat(", ", array.slice(_running, 0, 5))]) if count(_running) > 0

_running := [other.name | some other in input.pods; not _harmless(other)]
