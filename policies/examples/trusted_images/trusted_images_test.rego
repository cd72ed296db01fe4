package rule.trusted_images_test

import data.rule.trusted_images

# A module that names one of these fields has all of them.
_details := {"images": [], "resources": [], "restarts": 0, "conditions": {}, "started": 0, "ready_since": 0}

_image(registry, repository) := {
	"container": "app",
	"registry": registry,
	"repository": repository,
	"tag": "v1",
	"digest": "",
}

_own := _image("ghcr.io", "acme/web")

_with(images) := {
	"parameters": {"images": ["ghcr.io/acme/*", "docker.io/library/envoy"], "digest": false},
	"pod": object.union(_details, {"name": "web-0", "images": images}),
}

_pinned(images) := object.union(_with(images), {"parameters": {"digest": true}})

_withheld := {
	"another registry": _with([_image("docker.io", "acme/web")]),
	"another organization": _with([_image("ghcr.io", "acme-2/web")]),
	"a folder below": _with([_image("ghcr.io", "acme/old/web")]),
	"a longer host": _with([_image("ghcr.io.example.com", "acme/web")]),
	"one of two images": _with([_own, _image("docker.io", "library/nginx")]),
	"an image that is no reference": _with([_image("", "ghcr.io/acme/web")]),
	"no digest": _pinned([_own]),
	"no images": _with([]),
}

test_a_pod_with_trusted_images_goes if {
	trusted_images.allow with input as _with([_own, _image("docker.io", "library/envoy")])
	trusted_images.allow with input as _pinned([object.union(_own, {"digest": "sha256:0123"})])
}

test_other_pods_wait[name] if {
	some name, facts in _withheld
	not trusted_images.allow with input as facts
}

test_the_reason_names_the_images if {
	reason := "images that are not trusted: docker.io/library/nginx (app)"
	trusted_images.reason == reason with input as _withheld["one of two images"]
}

test_without_facts_no_pod_passes if {
	every fact in ["parameters", "pod"] {
		not trusted_images.allow with input as object.remove(_with([_own]), [fact])
	}
	trusted_images.reason == "the images of the pod are not known" with input as object.remove(_with([_own]), ["pod"])
}
