package podfields

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// MaxPathBytes bounds a path.
const MaxPathBytes = 512

// field is a parsed path: its steps from the pod on.
type field []step

// step goes to a field, and from a map or a list on to one of its entries.
type step struct {
	// index of the field, as reflect counts it.
	index []int

	// key of an entry; empty for a whole map.
	key string

	// name is the index of the field that names items, and item its value; nil without an item.
	name []int
	item string
}

// element is one name of a path, and the text in brackets behind it.
type element struct {
	name, subscript string
	subscripted     bool
}

// Validate returns an error if a path does not name one value of a pod. The error contains the
// mistake and a correction.
func Validate(path string) error {
	_, err := parse(path)
	return err
}

// parse parses a path.
func parse(path string) (field, error) {
	if path == "" {
		return nil, errors.New("the path is empty: name a field of the pod, such as metadata.name")
	}
	if len(path) > MaxPathBytes {
		return nil, fmt.Errorf("the path has %d bytes, at most %d are allowed", len(path), MaxPathBytes)
	}
	elements, err := split(path)
	if err != nil {
		return nil, err
	}
	if err := checkSecrets(elements); err != nil {
		return nil, err
	}
	return descend(elements)
}

// split returns the elements of a path. A dot in brackets belongs to the key.
func split(path string) ([]element, error) {
	var elements []element
	for {
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			return append(elements, element{name: path}), nil
		}
		next := element{name: path[:end]}
		rest, more := path[end+1:], true
		if path[end] == '[' {
			var closed bool
			if next.subscript, rest, closed = strings.Cut(rest, "]"); !closed {
				return nil, fmt.Errorf("%s: %w", next.name, errBrackets)
			}
			next.subscripted = true
			if rest, more = strings.CutPrefix(rest, "."); !more && rest != "" {
				return nil, fmt.Errorf("%s: %w", next.name, errBrackets)
			}
		}
		elements = append(elements, next)
		if !more {
			return elements, nil
		}
		path = rest
	}
}

// checkSecrets rejects the parts of a spec that may contain secrets, but for the images of containers.
func checkSecrets(elements []element) error {
	secret := []string{"containers", "initContainers", "ephemeralContainers", "volumes", "imagePullSecrets"}
	if len(elements) < 2 || elements[0].name != "spec" || !slices.Contains(secret, elements[1].name) {
		return nil
	}
	if elements[1].name == "containers" && elements[1].subscripted && len(elements) == 3 && elements[2] == (element{name: "image"}) {
		return nil
	}
	advice := "copy the value that the service needs into a label or an annotation of the pod"
	if elements[1].name == "containers" {
		advice = "only an image is, such as spec.containers[name=app].image; " + advice
	}
	return fmt.Errorf("spec.%s may hold secrets and is not sent: %s", elements[1].name, advice)
}

// itemName returns the field that names the items of a list, and the only fields of an item that a path may name; none for all.
// Items have names that do not change, and are in the cache of the manager.
func itemName(list string) (name string, only []string) {
	switch list {
	case "metadata.ownerReferences":
		return "kind", nil
	case "spec.containers":
		return "name", []string{"image"}
	case "status.conditions":
		return "type", nil
	case "status.containerStatuses":
		return "name", []string{"ready", "restartCount", "started"}
	default:
		return "", nil
	}
}

// descend follows elements through the schema of a pod.
func descend(elements []element) (field, error) {
	if root := elements[0]; !slices.Contains([]string{"metadata", "spec", "status"}, root.name) {
		return nil, fmt.Errorf("a path begins with metadata, spec or status, not with %q", root.name)
	}
	var steps field
	found, path := reflect.TypeFor[corev1.Pod](), ""
	for i, e := range elements {
		if found.Kind() == reflect.Pointer {
			found = found.Elem()
		}
		switch {
		case found.Kind() == reflect.Slice || found.Kind() == reflect.Array:
			return nil, listError(path)
		case found == reflect.TypeFor[map[string]string]():
			return nil, fmt.Errorf("%s is a map: write %s['%s']", path, path, rest(elements[i:]))
		case found.Kind() != reflect.Struct || isTime(found):
			return nil, fmt.Errorf("%s is a value and has no field %q", path, e.name)
		}
		index, below, ok := child(found, e.name)
		if !ok {
			return nil, unknownError(found, path, e.name)
		}
		if _, only := itemName(path); only != nil && !slices.Contains(only, e.name) {
			return nil, fmt.Errorf("%s of an item of %s is not sent: name one of %s", e.name, path, strings.Join(only, ", "))
		}
		path = strings.TrimPrefix(path+"."+e.name, ".")
		next := step{index: index}
		if e.subscripted {
			var err error
			if below, err = next.enter(path, e.subscript, below); err != nil {
				return nil, err
			}
		}
		steps, found = append(steps, next), below
	}
	if steps[len(steps)-1].key != "" {
		return steps, nil
	}
	return steps, checkWhole(path, found)
}

// enter goes on to the entry of a map or a list that a subscript names, and returns its type.
func (s *step) enter(path, subscript string, found reflect.Type) (reflect.Type, error) {
	name, _ := itemName(path)
	switch {
	case found == reflect.TypeFor[map[string]string]():
		key, err := keyIn(subscript)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		s.key = key
		return reflect.TypeFor[string](), checkKey(path, key)
	case name != "":
		item, ok := strings.CutPrefix(subscript, name+"=")
		if !ok {
			return nil, listError(path)
		}
		if problems := validation.IsQualifiedName(item); len(problems) > 0 {
			return nil, fmt.Errorf("%s: %q is no %s: %s", path, item, name, strings.Join(problems, "; "))
		}
		index, _, _ := child(found.Elem(), name)
		s.name, s.item = index, item
		return found.Elem(), nil
	default:
		return nil, fmt.Errorf("%s has no entries that a path could name: maps of strings have, such as metadata.labels['app'], "+
			"and status.conditions[type=Ready]", path)
	}
}

// rest returns the elements behind a map without brackets as its key.
func rest(elements []element) string {
	names := make([]string, 0, len(elements))
	for _, e := range elements {
		names = append(names, e.name)
	}
	return strings.Join(names, ".")
}

// checkWhole rejects a field that is more than one value.
func checkWhole(path string, found reflect.Type) error {
	if found.Kind() == reflect.Pointer {
		found = found.Elem()
	}
	switch {
	case isScalar(found), found == reflect.TypeFor[map[string]string](), isAddresses(found):
		return nil
	case found.Kind() == reflect.Slice || found.Kind() == reflect.Array:
		return listError(path)
	default:
		return fmt.Errorf("%s is not one value: go on to a field below it", path)
	}
}

func listError(path string) error {
	if name, _ := itemName(path); name != "" {
		return fmt.Errorf("%s is a list: name one item by its %s, and a field of it: %s[%s=...]", path, name, path, name)
	}
	return fmt.Errorf("%s is a list, and a path cannot name its items: copy the value that the service needs into a label or an annotation of the pod", path)
}

func unknownError(parent reflect.Type, path, name string) error {
	for _, field := range reflect.VisibleFields(parent) {
		if known := jsonName(field); name != "" && strings.EqualFold(known, name) {
			return fmt.Errorf("%s has no field %q: write %s", path, name, known)
		}
	}
	return fmt.Errorf("%s has no field %q: see kubectl explain pod.%s", path, name, path)
}

// child finds a field by its name in JSON.
func child(parent reflect.Type, name string) (step []int, found reflect.Type, ok bool) {
	if name == "" {
		return nil, nil, false
	}
	for _, field := range reflect.VisibleFields(parent) {
		if field.IsExported() && jsonName(field) == name {
			return field.Index, field.Type, true
		}
	}
	return nil, nil, false
}

// jsonName returns the name of a field in JSON; empty for an inlined or omitted field.
func jsonName(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	if name == "-" {
		return ""
	}
	return name
}

// errBrackets is returned for brackets that are not closed, or in a wrong place.
var errBrackets = errors.New("a key is written in brackets and single quotes: metadata.labels['app']")

// keyIn parses the text in brackets behind a map: 'key'.
func keyIn(subscript string) (string, error) {
	key, opens := strings.CutPrefix(subscript, "'")
	key, closes := strings.CutSuffix(key, "'")
	if !opens || !closes || key == "" {
		return "", errBrackets
	}
	return key, nil
}

func checkKey(path, key string) error {
	if path == "metadata.annotations" && isCopy(key) {
		return fmt.Errorf("annotation %s has a copy of the whole pod, which may hold secrets, and is not sent: name single fields", key)
	}
	if problems := validation.IsQualifiedName(strings.ToLower(key)); len(problems) > 0 {
		return fmt.Errorf("%s: %q is no key: %s", path, key, strings.Join(problems, "; "))
	}
	return nil
}

// isCopy reports whether the annotation contains the manifest of the pod, including its environment.
func isCopy(annotation string) bool { return annotation == corev1.LastAppliedConfigAnnotation }

func isScalar(found reflect.Type) bool {
	switch found.Kind() {
	case reflect.String, reflect.Bool, reflect.Int32, reflect.Int64:
		return true
	default:
		return isTime(found)
	}
}

func isTime(found reflect.Type) bool { return found == reflect.TypeFor[metav1.Time]() }

// isAddresses reports whether the downward API joins a list with commas.
func isAddresses(found reflect.Type) bool {
	return found == reflect.TypeFor[[]corev1.PodIP]() || found == reflect.TypeFor[[]corev1.HostIP]()
}
