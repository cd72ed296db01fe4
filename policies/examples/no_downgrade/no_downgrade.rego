# METADATA
# title: No downgrade
# description: |
#   In a rollout, a pod passes if each pod of the newest revision has a version that is not older
#   than its own, by semantic versioning. The version is the image tag of the container
#   parameters.container, such as 1.9.0 or v1.9.0-rc.1. A pod of the newest revision passes, and so
#   does a pod of an abandoned revision: they are no downgrade.
#
#   It needs a pod of the newest revision to compare with, so the workload is a Deployment with
#   maxSurge above 0. After a downgrade that was given up, the Deployment may have no room for such
#   a pod: then one pod passes without it.
package rule.no_downgrade

# METADATA
# description: True if no pod of the newest revision has an older version.
# scope: document
allow if input.pod.revision.state in {"Newest", "Abandoned"}

allow if {
	input.pod.revision.state == "Outdated"
	"Newest" in _states
	every other in input.pods { _not_older(other) }
}

allow if {
	input.pod.revision.state == "Outdated"
	"Abandoned" in _states
	every other in input.pods { _at_rest(other) }
}

# METADATA
# description: The first five pods with an older version, or what cannot be compared.
# scope: document
default reason := "the revisions of the pods are not known"

reason := sprintf("pod %s has no version as the image tag of %s", [input.pod.name, input.parameters.container]) if {
	not _version
} else := "there is no pod of the newest revision to compare with" if {
	not "Newest" in _states
} else := sprintf("version %s is newer than that of: %s", [_version, concat(", ", array.slice(_older, 0, 5))]) if {
	count(_older) > 0
}

_version := _version_of(input.pod)

_version_of(pod) := image.tag if {
	some image in pod.images
	image.container == input.parameters.container
	semver.is_valid(image.tag)
}

_foreign(other) if other.owner.uid != input.pod.owner.uid

_states := {other.revision.state | some other in input.pods; other.owner.uid == input.pod.owner.uid}

_not_older(other) if _foreign(other)

_not_older(other) if other.revision.state in {"Outdated", "Abandoned"}

_not_older(other) if semver.compare(_version_of(other), _version) >= 0

_at_rest(other) if _foreign(other)

_at_rest(other) if {
	other.revision.state in {"Outdated", "Abandoned"}
	other.permitted == false
}

_older := [other.name | some other in input.pods; not _not_older(other)]
