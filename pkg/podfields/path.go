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

// field is a parsed path.
type field struct {
	// steps are the indices of fields, as reflect counts them, from the pod on.
	steps [][]int

	// key of an entry; empty for the whole field.
	key string
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
		return field{}, errors.New("the path is empty: name a field of the pod, such as metadata.name")
	}
	if len(path) > MaxPathBytes {
		return field{}, fmt.Errorf("the path has %d bytes, at most %d are allowed", len(path), MaxPathBytes)
	}
	dotted, subscript, subscripted := strings.Cut(path, "[")
	names := strings.Split(dotted, ".")
	if err := checkSecrets(names); err != nil {
		return field{}, err
	}
	steps, found, err := descend(names)
	if err != nil {
		return field{}, err
	}
	if !subscripted {
		return field{steps: steps}, checkWhole(dotted, found)
	}
	if found != typeOf[map[string]string]() {
		return field{}, fmt.Errorf("%s has no entries that a key could name: only maps of strings have, such as metadata.labels['app']", dotted)
	}
	key, err := keyIn(subscript)
	if err != nil {
		return field{}, fmt.Errorf("%s: %w", dotted, err)
	}
	return field{steps: steps, key: key}, checkKey(dotted, key)
}

// checkSecrets rejects the parts of a spec that may contain secrets. Most of them are lists,
// which are rejected in any case, but with another reason.
func checkSecrets(names []string) error {
	const advice = "copy the value that the service needs into a label or an annotation of the pod"
	secret := []string{"containers", "initContainers", "ephemeralContainers", "volumes", "imagePullSecrets"}
	if len(names) > 1 && names[0] == "spec" && slices.Contains(secret, names[1]) {
		return fmt.Errorf("spec.%s may hold secrets and is not sent: %s", names[1], advice)
	}
	return nil
}

// descend follows names through the schema of a pod.
func descend(names []string) (steps [][]int, found reflect.Type, err error) {
	if !slices.Contains([]string{"metadata", "spec", "status"}, names[0]) {
		return nil, nil, fmt.Errorf("a path begins with metadata, spec or status, not with %q", names[0])
	}
	found = typeOf[corev1.Pod]()
	for i, name := range names {
		parent := strings.Join(names[:i], ".")
		if found.Kind() == reflect.Pointer {
			found = found.Elem()
		}
		switch {
		case found.Kind() == reflect.Slice || found.Kind() == reflect.Array:
			return nil, nil, listError(parent)
		case found == typeOf[map[string]string]():
			return nil, nil, fmt.Errorf("%s is a map: write %s['%s']", parent, parent, strings.Join(names[i:], "."))
		case found.Kind() != reflect.Struct || isTime(found):
			return nil, nil, fmt.Errorf("%s is a value and has no field %q", parent, name)
		}
		step, below, ok := child(found, name)
		if !ok {
			return nil, nil, unknownError(found, parent, name)
		}
		steps, found = append(steps, step), below
	}
	return steps, found, nil
}

// checkWhole rejects a field that is more than one value.
func checkWhole(path string, found reflect.Type) error {
	if found.Kind() == reflect.Pointer {
		found = found.Elem()
	}
	switch {
	case isScalar(found), found == typeOf[map[string]string](), isAddresses(found):
		return nil
	case found.Kind() == reflect.Slice || found.Kind() == reflect.Array:
		return listError(path)
	default:
		return fmt.Errorf("%s is not one value: go on to a field below it", path)
	}
}

func listError(path string) error {
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

// keyIn parses the part after the opening bracket: 'key'].
func keyIn(subscript string) (string, error) {
	quoted, closed := strings.CutSuffix(subscript, "]")
	key, opens := strings.CutPrefix(quoted, "'")
	key, closes := strings.CutSuffix(key, "'")
	if !closed || !opens || !closes || key == "" {
		return "", errors.New("a key is written in brackets and single quotes, at the end: metadata.labels['app']")
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

func isTime(found reflect.Type) bool { return found == typeOf[metav1.Time]() }

// isAddresses reports whether the downward API joins a list with commas.
func isAddresses(found reflect.Type) bool {
	return found == typeOf[[]corev1.PodIP]() || found == typeOf[[]corev1.HostIP]()
}

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }
