package podindex

import (
	"slices"
	"strings"
)

// Bounds of the annotations that rules see, so that a pod with large annotations does not make
// every evaluation expensive.
const (
	// maxAnnotations is the number of annotations that rules see: the first by key.
	maxAnnotations = 32

	// MaxAnnotationValueBytes is the length of the longest value that rules see.
	MaxAnnotationValueBytes = 256

	// ownDomain is the annotation domain of PodOps and related controllers, which
	// use it and its subdomains.
	ownDomain = "kusionstack.io"
)

// visibleAnnotations returns the annotations that rules see: the argument itself if rules see
// all of them, nil if they see no annotation.
func visibleAnnotations(all map[string]string) map[string]string {
	var visible []string
	for key, value := range all {
		if len(value) <= MaxAnnotationValueBytes && !isOwn(key) {
			visible = append(visible, key)
		}
	}
	switch {
	case len(visible) == 0:
		return nil
	case len(visible) == len(all) && len(all) <= maxAnnotations:
		return all
	}
	slices.Sort(visible)
	chosen := make(map[string]string, min(len(visible), maxAnnotations))
	for _, key := range visible[:min(len(visible), maxAnnotations)] {
		chosen[key] = all[key]
	}
	return chosen
}

func isOwn(key string) bool {
	domain, _, found := strings.Cut(key, "/")
	return found && (domain == ownDomain || strings.HasSuffix(domain, "."+ownDomain))
}
