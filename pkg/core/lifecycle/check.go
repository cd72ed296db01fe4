package lifecycle

import (
	"maps"
	"slices"
	"strings"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// CheckUpdate checks an update again, after every mutating webhook: it denies a label that
// only PodOps may set and that neither was there nor follows from the request. It checks only
// additions. The controller adds a label that is missing; denying its absence would make the
// response depend on the time between the two checks.
func CheckUpdate(old, requested PodFacts, trusted bool, opts Options, now time.Time) []Denial {
	if trusted || old.Terminating || !requested.Controlled() {
		return nil
	}
	before := old.Labels
	if !old.Controlled() {
		before = nil
	}
	old.Services = ServicesNone // the mutating webhook has read them
	sent := requested
	sent.Labels = clientRequest(before, requested.Labels)
	admission := AdmitUpdate(old, sent, false, opts, now)
	if len(admission.Denials) > 0 {
		return admission.Denials
	}
	expected := admission.Change.Apply(sent.Labels)
	var denials []Denial
	for key, value := range requested.Labels {
		if IsOwned(key) && !follows(key, value, before, expected) {
			denials = append(denials, forgedLabel(key))
		}
	}
	return byKey(denials)
}

// clientRequest returns the labels of the request as its client may have sent it: without the
// labels that PodOps added, with the labels that it removed. An id without any label was undone; if
// it was cancelled or has become available, the outcome is the same.
func clientRequest(before, requested map[string]string) map[string]string {
	sent := maps.Clone(requested)
	maps.DeleteFunc(sent, func(key, _ string) bool { return IsOwned(key) })
	for key, value := range before {
		if IsOwned(key) {
			sent[key] = value
		}
	}
	left := operationIDs(requested)
	for _, id := range operationIDs(before) {
		operationType := label(appsv1alpha1.OperationTypeLabelPrefix, id)
		switch {
		case !slices.Contains(left, id):
			sent[label(appsv1alpha1.UndoOperationTypeLabelPrefix, id)] = ""
		case !hasLabel(requested, appsv1alpha1.OperatingLabelPrefix, id) && hasKey(before, operationType):
			// A finish removed it.
			sent[operationType] = before[operationType]
		}
	}
	return sent
}

// follows reports whether an owned label may have this value: it was there before, or
// follows from the request. Times may differ, because each check has its own.
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
