package lifecycle

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

const (
	// MaxUserBytes is the size to which records cut the name of a user.
	MaxUserBytes = 256

	// maxGroups and maxGroupBytes bound the groups of a user in a record; the bytes are those in JSON.
	maxGroups, maxGroupBytes = 32, 1 << 10

	// maxRequesters bounds the entries of one pod.
	maxRequesters = 16
)

// BoundGroups returns the groups of a user as records have them: sorted, at most 32, and at most 1 KiB in JSON. It
// reports whether groups are missing.
func BoundGroups(groups []string) (kept []string, truncated bool) {
	size := 0
	for _, group := range slices.Compact(slices.Sorted(slices.Values(groups))) {
		encoded, err := json.Marshal(group)
		size += len(encoded) + len(",")
		if err != nil || len(kept) == maxGroups || size > maxGroupBytes || strings.Contains(group, "\n") {
			return kept, true
		}
		kept = append(kept, group)
	}
	return kept, false
}

// Requesters are the users who requested operations by labels, by the key of the label.
type Requesters map[string]appsv1alpha1.LabelRequester

// ParseRequesters returns the entries in the annotations of a pod; nil without any, and for a malformed annotation.
func ParseRequesters(annotations map[string]string) Requesters {
	value := annotations[appsv1alpha1.RequestersAnnotationKey]
	if value == "" || len(value) > appsv1alpha1.MaxAnnotationBytes {
		return nil
	}
	var parsed Requesters
	if json.Unmarshal([]byte(value), &parsed) != nil {
		return nil
	}
	return parsed
}

// Encode returns the value of the annotation; empty without entries.
func (r Requesters) Encode() string {
	if len(r) == 0 {
		return ""
	}
	value, err := json.Marshal(r)
	if err != nil {
		return "" // no value of the type is invalid
	}
	return string(value)
}

// Find returns the user who requested the operation of a label as the labels of the pod have it now; false if that is not known.
func (r Requesters) Find(key string, labels map[string]string) (appsv1alpha1.LabelRequester, bool) {
	entry, ok := r[key]
	value, has := labels[key]
	return entry, ok && has && entry.Value == value && entry.Type == operationType(key, labels)
}

// Change returns the value of the annotation once the pod has other labels; nil without entries for them.
func (r Requesters) Change(labels map[string]string) *string {
	kept := Requesters{}
	for key := range r {
		if entry, valid := r.Find(key, labels); valid {
			kept[key] = entry
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return new(kept.Encode())
}

// Forged reports whether an entry for the labels of a pod is not among the expected entries.
func (r Requesters) Forged(expected Requesters, labels map[string]string) bool {
	for key := range r {
		if entry, valid := r.Find(key, labels); valid && !reflect.DeepEqual(entry, expected[key]) {
			return true
		}
	}
	return false
}

// Update returns the entries after a request of a user that changes the labels of the pod. A label that the request sets, or
// whose operation type it changes, gets the user; a label that stays keeps its entry. The deletes that PodOps itself begins
// have a record of their own.
func (r Requesters) Update(before, after map[string]string, user appsv1alpha1.LabelRequester) Requesters {
	next := Requesters{}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if !requestsOperation(key) {
			continue
		}
		entry, known := r.Find(key, after)
		switch value, had := before[key]; {
		case had && value == after[key] && operationType(key, before) == operationType(key, after):
			if !known {
				continue
			}
		case user.Actor == RequesterManager && key == deleteLabel:
			continue
		default:
			entry = user
			entry.Value, entry.Type = after[key], operationType(key, after)
		}
		if len(next) < maxRequesters {
			next[key] = entry
		}
	}
	return next
}

// RequesterManager is the class of PodOps in LabelRequester.
const RequesterManager = "Manager"

const deleteLabel = appsv1alpha1.OperatingLabelPrefix + "/" + appsv1alpha1.PodDeleteID

// requestsOperation reports whether a label requests an operation.
func requestsOperation(key string) bool {
	return key == appsv1alpha1.ToDeleteLabelKey || strings.HasPrefix(key, appsv1alpha1.OperatingLabelPrefix+"/")
}

// operationType returns the operation type that belongs to a label operating; empty for any other label.
func operationType(key string, labels map[string]string) string {
	id, ok := strings.CutPrefix(key, appsv1alpha1.OperatingLabelPrefix+"/")
	if !ok {
		return ""
	}
	return labels[appsv1alpha1.OperationTypeLabelPrefix+"/"+id]
}
