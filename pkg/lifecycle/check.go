package lifecycle

import (
	"maps"
	"slices"
	"strings"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// CheckUpdate is the second look at an update, after every mutating webhook: it denies
// a label that only PodOps may set and that neither was there nor follows from the
// request. It looks in one direction only. A label that should be there and is not
// gets added by the controller; to deny for it would make the answer depend on the
// time between the two looks.
func CheckUpdate(old, requested PodFacts, trusted bool, opts Options, now time.Time) []Denial {
	if trusted || old.Terminating || !requested.Controlled() {
		return nil
	}
	before := old.Labels
	if !old.Controlled() {
		before = nil
	}
	asked := requested
	asked.Labels = askedFor(before, requested.Labels)
	answer := AdmitUpdate(old, asked, false, opts, now)
	if len(answer.Denials) > 0 {
		return answer.Denials
	}
	expected := answer.Change.Apply(asked.Labels)
	var denials []Denial
	for _, key := range slices.Sorted(maps.Keys(requested.Labels)) {
		if IsOwned(key) && !follows(key, requested.Labels[key], before, expected) {
			denials = append(denials, forgedLabel(key))
		}
	}
	return denials
}

// askedFor are the labels of the request as its client may have sent it: without what
// PodOps added, with what PodOps removed. An id of which no label is left was undone;
// if it was cancelled or has become available, the outcome is the same.
func askedFor(before, requested map[string]string) map[string]string {
	asked := maps.Clone(requested)
	maps.DeleteFunc(asked, func(key, _ string) bool { return IsOwned(key) })
	for key, value := range before {
		if IsOwned(key) {
			asked[key] = value
		}
	}
	left := idsOf(requested)
	for _, id := range idsOf(before) {
		operationType := label(appsv1alpha1.OperationTypeLabelPrefix, id)
		switch {
		case !slices.Contains(left, id):
			asked[label(appsv1alpha1.UndoOperationTypeLabelPrefix, id)] = ""
		case !hasKey(requested, label(appsv1alpha1.OperatingLabelPrefix, id)) && hasKey(before, operationType):
			// A finish took it.
			asked[operationType] = before[operationType]
		}
	}
	return asked
}

// follows reports whether an owned label may have this value: it was there before, or
// the request leads to it. Times may differ, since every look has its own.
func follows(key, value string, before, expected map[string]string) bool {
	was, had := before[key]
	if had && was == value {
		return true
	}
	want, ok := expected[key]
	if !ok || had && was == want {
		return false
	}
	prefix, _, _ := strings.Cut(key, "/")
	_, isTime := ParseTime(value)
	return value == want || isTime && prefix != appsv1alpha1.DoneOperationTypeLabelPrefix
}
