package absence

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/podops-dev/podops/pkg/engine/opa/vet"
)

// The objects whose entries are optional.
const (
	parametersObject = "parameters"
	podConditions    = "pod.conditions"
	podRequests      = "pod.resources[0].requests"
	podLimits        = "pod.resources[0].limits"
)

// objects returns the objects whose entries are optional, without the parameters. Of other pods, the first one has other entries.
func objects() []string {
	return []string{
		"pod.labels", "pod.annotations", "namespace.labels", podConditions, podRequests, podLimits, "node.labels", "node.conditions",
		"pods[0].labels", "pods[0].annotations", "rule.filter.matchLabels",
	}
}

// reads are the facts that a module reads.
type reads struct {
	// facts are the facts, parameters first.
	facts []fact

	// places are where the module reads them first.
	places map[fact]vet.Place

	// bodies are the comparisons of the module, by rule.
	bodies [][]vet.Equality

	// input are all reads of the input.
	input []vet.InputRead

	// isProvided is true for facts for whose absence the module provides where it reads them.
	isProvided map[fact]bool
}

// newReads returns the facts that a module can read. Where it computes a key, or passes an object on, its keys are given keys,
// the constant strings of the module, and the keys by which it reads values whose place is not known.
func newReads(module vet.Reads, parameters []fact, given []string) reads {
	found := reads{bodies: module.Bodies, input: module.Input, places: map[fact]vet.Place{}, isProvided: map[fact]bool{}}
	keys := keysIn(module, given)
	for _, one := range parameters {
		found.addParameter(one, module, keys)
	}
	encodings := map[string]encoding{podConditions: asCondition, podRequests: asQuantity, podLimits: asQuantity}
	whole := map[string]bool{}
	for _, object := range objects() {
		path := splitPath(object)
		for _, read := range module.Input {
			switch below, isBelow := keyBelow(path, read); {
			case isBelow && below != vet.AnyKey:
				found.add(fact{object, below, encodings[object]}, read.Places[len(path)], read.Provides(len(path)))
			case isBelow && read.Provides(len(path)): // a default for any key
			case isBelow, isPassedOn(path, read) && areKeys(path[len(read.Path):], keys):
				whole[object] = true
			}
		}
	}
	for _, one := range append(fields(), ruleConditions()) {
		found.addField(one, module, keys)
	}
	maps.DeleteFunc(keys, func(key string, _ vet.Place) bool { return len(content.IsLabelKey(key)) > 0 })
	for _, object := range objects() {
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			one := fact{object, key, encodings[object]}
			if _, known := found.places[one]; whole[object] && !known {
				found.add(one, keys[key], isTested(module, append(splitPath(object), key)))
			}
		}
	}
	return found
}

// hasEntries reports whether the module reads entries of a map by their keys, and has no value for one that is absent.
func (r *reads) hasEntries(one fact) bool {
	path := one.path()
	return slices.ContainsFunc(r.input, func(read vet.InputRead) bool {
		_, isEntry := keyBelow(path, read)
		return isEntry && !read.IsIterated && !read.IsItem && !read.IsOptional && !read.Provides(len(path))
	})
}

// keysIn returns the keys where a key is computed, with their places.
func keysIn(module vet.Reads, given []string) map[string]vet.Place {
	keys := maps.Clone(module.Strings)
	for _, read := range module.Others {
		for i, key := range read.Path {
			if _, known := keys[key]; !known && key != vet.AnyKey {
				keys[key] = read.Places[i]
			}
		}
	}
	for _, key := range given {
		if _, known := keys[key]; !known {
			keys[key] = vet.Place{}
		}
	}
	return keys
}

// keyBelow returns the key of the object at a path that is read.
func keyBelow(path []string, read vet.InputRead) (key string, ok bool) {
	if len(read.Path) <= len(path) || !slices.Equal(read.Path[:len(path)], path) {
		return "", false
	}
	return read.Path[len(path)], true
}

// isPassedOn reports whether the object at a path is read as a value, or as a part of one.
func isPassedOn(path []string, read vet.InputRead) bool {
	return len(read.Path) <= len(path) && slices.Equal(path[:len(read.Path)], read.Path) && !read.IsIterated
}

// areKeys reports whether a module that passes an object on can read a path below it.
func areKeys(path []string, keys map[string]vet.Place) bool {
	return !slices.ContainsFunc(path, func(key string) bool {
		_, isKey := keys[key]
		return !isKey && key != vet.AnyKey
	})
}

// splitPath returns the keys of a path, such as pod.resources[0].limits.
func splitPath(path string) []string {
	return strings.Split(strings.ReplaceAll(path, "[0]", "."+vet.AnyKey), ".")
}

// add adds a fact. One that is provided at one place and not at another is not provided.
func (r *reads) add(one fact, place vet.Place, isProvided bool) {
	if _, known := r.places[one]; !known {
		r.facts = append(r.facts, one)
		r.places[one], r.isProvided[one] = place, isProvided
	}
	r.isProvided[one] = r.isProvided[one] && isProvided
}

// addParameter adds a parameter that the module reads, or may read of an object that it passes on.
func (r *reads) addParameter(one fact, module vet.Reads, keys map[string]vet.Place) {
	path := one.path()
	isPassed := false
	for _, read := range module.Input {
		shared := min(len(path), len(read.Path))
		switch {
		case !slices.Equal(path[:shared], read.Path[:shared]):
		case len(read.Path) >= len(path):
			r.add(one, read.Places[len(path)-1], read.Provides(len(path)-1))
		default:
			isPassed = isPassed || !read.IsIterated && areKeys(path[shared:], keys)
		}
	}
	if _, known := r.places[one]; isPassed && !known {
		r.add(one, keys[one.key], isTested(module, path))
	}
}

// isTested reports whether the module tests whether the value at a path is absent, where it may have been passed on.
func isTested(module vet.Reads, path []string) bool {
	return module.TestedKeys[path[len(path)-1]] ||
		slices.ContainsFunc(module.Tested, func(read vet.InputRead) bool { return slices.Equal(read.Path, path) })
}

// addField adds a field that the module reads, or may read of an object that it passes on.
func (r *reads) addField(one fact, module vet.Reads, keys map[string]vet.Place) {
	path := one.path()
	for _, read := range module.Input {
		shared := min(len(path), len(read.Path))
		if !slices.Equal(path[:shared], read.Path[:shared]) || read.IsIterated && len(read.Path) < len(path) {
			continue
		}
		if place, isKey := keys[one.key]; len(read.Path) >= len(path) {
			r.add(one, read.Places[len(path)-1], read.Provides(len(path)-1))
		} else if isKey {
			r.add(one, place, false)
		}
	}
}
