package podfields

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxValueBytes bounds a value, as the CRD bounds a value that is written into the rule.
const MaxValueBytes = 4 << 10

// Value returns the value at a path of a pod as text: numbers in decimals, booleans as true and
// false, times as RFC 3339 in UTC, a map of strings as JSON with its keys in order, and
// the lists status.podIPs and status.hostIPs joined with commas. Of several items with the name in a path the first counts.
//
// A missing value is the empty string, and so is a value of more than MaxValueBytes: a
// truncated value would be wrong. ok is false only for a path that Validate rejects.
func Value(pod *corev1.Pod, path string) (value string, ok bool) {
	field, err := parse(path)
	if err != nil {
		return "", false
	}
	found := text(pod, field)
	if len(found) > MaxValueBytes {
		return "", true
	}
	return found, true
}

func text(pod *corev1.Pod, field field) string {
	at := reflect.ValueOf(pod)
	for _, step := range field {
		if at = pointed(at); !at.IsValid() {
			return ""
		}
		if at = step.from(at); !at.IsValid() {
			return ""
		}
	}
	if at = pointed(at); !at.IsValid() {
		return ""
	}
	if entries, ok := at.Interface().(map[string]string); ok {
		return document(entries)
	}
	return scalar(at)
}

// from goes one step; the result is not valid without the entry.
func (s step) from(at reflect.Value) reflect.Value {
	at = at.FieldByIndex(s.index)
	switch {
	case s.key != "":
		return at.MapIndex(reflect.ValueOf(s.key))
	case s.name == nil:
		return at
	}
	for i := range at.Len() {
		if at.Index(i).FieldByIndex(s.name).String() == s.item {
			return at.Index(i)
		}
	}
	return reflect.Value{}
}

// pointed follows a pointer; the result for nil is not valid.
func pointed(value reflect.Value) reflect.Value {
	if value.Kind() == reflect.Pointer {
		return value.Elem()
	}
	return value
}

// document returns a map as JSON, without copies of the pod. An empty map is {}.
func document(entries map[string]string) string {
	shown := maps.Clone(entries)
	if shown == nil {
		shown = map[string]string{}
	}
	maps.DeleteFunc(shown, func(key, _ string) bool { return isCopy(key) })
	encoded, err := json.Marshal(shown)
	if err != nil {
		return "" // a map of strings always has JSON
	}
	return string(encoded)
}

func scalar(value reflect.Value) string {
	switch value := value.Interface().(type) {
	case metav1.Time:
		if value.IsZero() {
			return ""
		}
		return value.UTC().Format(time.RFC3339)
	case []corev1.PodIP:
		return joined(value, func(ip corev1.PodIP) string { return ip.IP })
	case []corev1.HostIP:
		return joined(value, func(ip corev1.HostIP) string { return ip.IP })
	default:
		return fmt.Sprint(value)
	}
}

func joined[T any](items []T, name func(T) string) string {
	names := make([]string, 0, len(items))
	for _, item := range items {
		names = append(names, name(item))
	}
	return strings.Join(names, ",")
}
