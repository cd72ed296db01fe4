package decisionlog

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// maskedValue replaces a masked value.
const maskedValue = "***"

// Mask is a path in the input of a rule: "pod.annotations", "parameters.token". A "*" matches
// every key of an object and every item of an array.
type Mask []string

// ParseMasks parses a list of paths, separated by commas. A path cannot contain a dot within a
// key; mask the object that contains the key.
func ParseMasks(list string) ([]Mask, error) {
	var masks []Mask
	for path := range strings.SplitSeq(list, ",") {
		if path = strings.TrimSpace(path); path == "" {
			continue
		}
		mask := Mask(strings.Split(strings.TrimPrefix(path, "input."), "."))
		if slices.Contains(mask, "") {
			return nil, fmt.Errorf("%q is not a path such as pod.annotations: it has an empty part", path)
		}
		masks = append(masks, mask)
	}
	return masks, nil
}

// masked replaces the values at the masked paths, and returns the paths that existed.
func masked(input json.RawMessage, masks []Mask) (json.RawMessage, []string, error) {
	if len(masks) == 0 {
		return input, nil, nil
	}
	decoder := json.NewDecoder(strings.NewReader(string(input)))
	decoder.UseNumber() // nanoseconds do not fit a float
	var document any
	if err := decoder.Decode(&document); err != nil {
		return nil, nil, fmt.Errorf("decoding input: %w", err)
	}
	var found []string
	for _, mask := range masks {
		if replace(document, mask) {
			found = append(found, strings.Join(mask, "."))
		}
	}
	if len(found) == 0 {
		return input, nil, nil
	}
	text, err := json.Marshal(document)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding masked input: %w", err)
	}
	return text, found, nil
}

// replace reports whether the path existed.
func replace(document any, path Mask) bool {
	found := false
	switch node := document.(type) {
	case map[string]any:
		for key := range node {
			if path[0] != "*" && path[0] != key {
				continue
			}
			if len(path) == 1 {
				node[key], found = maskedValue, true
				continue
			}
			found = replace(node[key], path[1:]) || found
		}
	case []any:
		for i := range node {
			if path[0] != "*" {
				return false
			}
			if len(path) == 1 {
				node[i], found = maskedValue, true
				continue
			}
			found = replace(node[i], path[1:]) || found
		}
	}
	return found
}
