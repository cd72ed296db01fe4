package decisionlog

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/podops-dev/podops/pkg/core/rule/spec"
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

// masked replaces the values at the masked paths, and returns the paths that existed, and the texts that were replaced.
func masked(input json.RawMessage, masks []Mask) (text json.RawMessage, found []string, secrets []string, err error) {
	if len(masks) == 0 {
		return input, nil, nil, nil
	}
	document, err := decoded(input)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("decoding input: %w", err)
	}
	for _, mask := range masks {
		if replace(document, mask, &secrets) {
			found = append(found, strings.Join(mask, "."))
		}
	}
	if len(found) == 0 {
		return input, nil, nil, nil
	}
	if text, err = json.Marshal(document); err != nil {
		return nil, nil, nil, fmt.Errorf("encoding masked input: %w", err)
	}
	return text, found, secrets, nil
}

func decoded(text json.RawMessage) (document any, err error) {
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber() // nanoseconds do not fit a float
	return document, decoder.Decode(&document)
}

// maskedModule returns a module with masked parameters: they are part of its input.
func maskedModule(module spec.Module, masks []Mask) spec.Module {
	if module.Custom == nil {
		return module
	}
	var own []Mask
	for _, mask := range masks {
		switch {
		case mask[0] != "parameters" && mask[0] != "*":
		case len(mask) == 1:
			own = append(own, Mask{"*"})
		default:
			own = append(own, mask[1:])
		}
	}
	parameters, _, _, err := masked(module.Custom.Parameters, own)
	if err != nil {
		parameters = json.RawMessage(`{}`)
	}
	custom := *module.Custom
	custom.Parameters, module.Custom = parameters, &custom
	return module
}

// shortestSecret is the length of the shortest text that is replaced in outputs: a shorter one is part of too many words.
const shortestSecret = 4

// hiding returns what replaces masked texts in others, the longest first.
func hiding(secrets []string) *strings.Replacer {
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, secret := range secrets {
		if len(secret) >= shortestSecret {
			pairs = append(pairs, secret, maskedValue)
		}
	}
	return strings.NewReplacer(pairs...)
}

// withoutSecrets replaces masked texts in the strings of a document: a module may repeat its input in a message.
func withoutSecrets(output json.RawMessage, secrets []string) (json.RawMessage, error) {
	if len(secrets) == 0 || len(output) == 0 {
		return output, nil
	}
	document, err := decoded(output)
	if err != nil {
		return nil, fmt.Errorf("decoding output: %w", err)
	}
	text, err := json.Marshal(mapStrings(document, hiding(secrets).Replace))
	if err != nil {
		return nil, fmt.Errorf("encoding masked output: %w", err)
	}
	return text, nil
}

// mapStrings returns a document with other strings, in keys of objects, too.
func mapStrings(document any, change func(string) string) any {
	switch node := document.(type) {
	case string:
		return change(node)
	case map[string]any:
		changed := make(map[string]any, len(node))
		for key, value := range node {
			changed[change(key)] = mapStrings(value, change)
		}
		return changed
	case []any:
		for i := range node {
			node[i] = mapStrings(node[i], change)
		}
	}
	return document
}

// appendStrings appends the strings among the values of a document. Keys are no secrets.
func appendStrings(all []string, document any) []string {
	switch node := document.(type) {
	case string:
		all = append(all, node)
	case map[string]any:
		for _, value := range node {
			all = appendStrings(all, value)
		}
	case []any:
		for _, value := range node {
			all = appendStrings(all, value)
		}
	}
	return all
}

// replace reports whether the path existed. It adds the strings that it replaces to secrets.
func replace(document any, path Mask, secrets *[]string) bool {
	found := false
	switch node := document.(type) {
	case map[string]any:
		for key := range node {
			if path[0] != "*" && path[0] != key {
				continue
			}
			if len(path) == 1 {
				*secrets = appendStrings(*secrets, node[key])
				node[key], found = maskedValue, true
				continue
			}
			found = replace(node[key], path[1:], secrets) || found
		}
	case []any:
		for i := range node {
			if path[0] != "*" {
				return false
			}
			if len(path) == 1 {
				*secrets = appendStrings(*secrets, node[i])
				node[i], found = maskedValue, true
				continue
			}
			found = replace(node[i], path[1:], secrets) || found
		}
	}
	return found
}
