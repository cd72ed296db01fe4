# METADATA
# title: Trusted images
# description: |
#   A pod passes if the image of each container is one of parameters.images: patterns of registry
#   and repository, such as ghcr.io/acme/*, in which * stands for any characters except "/", and **
#   for any characters. If parameters.digest is true, each image has a digest, too. Init containers
#   do not count. In the stage PostCheck, the images are those after an update in place.
package rule.trusted_images

# METADATA
# description: True if every image is trusted.
# scope: document
allow if {
	count(input.pod.images) > 0
	every image in input.pod.images { _trusted(image) }
}

# METADATA
# description: The first five containers whose images are not trusted.
# scope: document
default reason := "the images of the pod are not known"

reason := sprintf("images that are not trusted: %s", [concat(", ", array.slice(_strange, 0, 5))]) if count(_strange) > 0

_trusted(image) if {
	some pattern in input.parameters.images
	glob.match(pattern, ["/"], _name(image))
	_fixed(image)
}

_fixed(image) if startswith(image.digest, "sha256:")

_fixed(_) if input.parameters.digest == false

_name(image) := sprintf("%s/%s", [image.registry, image.repository])

_strange := [sprintf("%s (%s)", [_name(image), image.container]) |
	some image in input.pod.images
	not _trusted(image)
]
