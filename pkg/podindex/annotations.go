package podindex

import (
	"slices"
	"strings"
)

// Bounds of the annotations that rules see, so that one pod with much in them does not
// make every evaluation expensive.
const (
	// maxAnnotations is how many rules see at most: the first by key.
	maxAnnotations = 32

	// maxAnnotationValueBytes is the longest value that rules see.
	maxAnnotationValueBytes = 256

	// ownDomain is that of the annotations that PodOps and its relatives write, and of
	// all domains below it.
	ownDomain = "kusionstack.io"
)

// visibleAnnotations are those that rules see. The map is shared with the argument if
// they are all; nil if there are none.
func visibleAnnotations(all map[string]string) map[string]string {
	var visible []string
	for key, value := range all {
		if len(value) <= maxAnnotationValueBytes && !isOwn(key) {
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
