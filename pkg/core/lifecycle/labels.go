package lifecycle

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// prefixEnd ends every prefix of labels with an id.
const prefixEnd = ".podopslifecycle.kusionstack.io"

// clientPrefixes returns the prefixes of labels with an id that belong to operation controllers.
func clientPrefixes() []string {
	return []string{
		appsv1alpha1.OperatingLabelPrefix,
		appsv1alpha1.OperationTypeLabelPrefix,
		appsv1alpha1.UndoOperationTypeLabelPrefix,
	}
}

// ownedPrefixes returns the prefixes of labels with an id that belong to PodOps.
func ownedPrefixes() []string {
	return []string{
		appsv1alpha1.BeganLabelPrefix,
		appsv1alpha1.PreCheckLabelPrefix,
		appsv1alpha1.PreCheckedLabelPrefix,
		appsv1alpha1.PrepareLabelPrefix,
		appsv1alpha1.PreparingLabelPrefix,
		appsv1alpha1.OperateLabelPrefix,
		appsv1alpha1.OperatedLabelPrefix,
		appsv1alpha1.DoneOperationTypeLabelPrefix,
		appsv1alpha1.UncheckedLabelPrefix,
		appsv1alpha1.PostCheckLabelPrefix,
		appsv1alpha1.PostCheckedLabelPrefix,
		appsv1alpha1.CompleteLabelPrefix,
		appsv1alpha1.CompletingLabelPrefix,
	}
}

// finishedPrefixes returns the prefixes of labels with an id that appear with finish, or later.
func finishedPrefixes() []string {
	return []string{
		appsv1alpha1.OperatedLabelPrefix,
		appsv1alpha1.DoneOperationTypeLabelPrefix,
		appsv1alpha1.PostCheckLabelPrefix,
		appsv1alpha1.PostCheckedLabelPrefix,
		appsv1alpha1.CompleteLabelPrefix,
		appsv1alpha1.CompletingLabelPrefix,
	}
}

// IsOwned reports whether only PodOps may add, change or remove a label.
func IsOwned(key string) bool {
	if key == appsv1alpha1.ServiceAvailableLabelKey {
		return true
	}
	prefix, _, found := strings.Cut(key, "/")
	return found && (prefix == appsv1alpha1.OperationPermissionLabelPrefix || slices.Contains(ownedPrefixes(), prefix))
}

// MaxIDs is the number of ids that a pod may have at once. Each id has several labels, and
// every step of an id reads the labels of all ids.
const MaxIDs = 64

// isWithoutID reports whether a key is a lifecycle label without its id, or a permission
// without its type.
func isWithoutID(key string) bool {
	return key == appsv1alpha1.OperationPermissionLabelPrefix || slices.Contains(clientPrefixes(), key) || slices.Contains(ownedPrefixes(), key)
}

// isPerLifecycle reports whether a label belongs to one lifecycle, of PodOps or a client:
// it means nothing on a pod that was just created.
func isPerLifecycle(key string) bool {
	prefix, _, found := strings.Cut(key, "/")
	return IsOwned(key) || isWithoutID(key) || found && slices.Contains(clientPrefixes(), prefix)
}

// operationIDs returns every id that some label names, sorted.
func operationIDs(labels map[string]string) []string {
	var ids []string
	for key := range labels {
		prefix, id, found := strings.Cut(key, "/")
		// Most labels of a pod belong to no lifecycle, and their prefixes need not be compared one by one.
		if !found || !strings.HasSuffix(prefix, prefixEnd) {
			continue
		}
		if (len(ids) == 0 || ids[len(ids)-1] != id) && (slices.Contains(clientPrefixes(), prefix) || slices.Contains(ownedPrefixes(), prefix)) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// IDs returns every id that a label of a pod names, sorted.
func IDs(labels map[string]string) []string { return operationIDs(labels) }

// labelValue returns an id's label value, and whether it is present. It allocates no key: every step of an
// id reads most of its labels.
func labelValue(labels map[string]string, prefix, id string) (value string, ok bool) {
	var buffer [128]byte // of the longest prefix, and an id of at most 63 bytes
	key := append(append(append(buffer[:0], prefix...), '/'), id...)
	value, ok = labels[string(key)]
	return value, ok
}

// Value returns an id's label value, and whether it is present. prefix is one of the prefixes that end
// in the domain of PodOpsLifecycle.
func Value(labels map[string]string, prefix, id string) (value string, ok bool) {
	return labelValue(labels, prefix, id)
}

func hasLabel(labels map[string]string, prefix, id string) bool {
	_, ok := labelValue(labels, prefix, id)
	return ok
}

func hasKey(labels map[string]string, key string) bool {
	_, ok := labels[key]
	return ok
}

func label(prefix, id string) string { return prefix + "/" + id }

func stamp(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

// ParseTime reads a label value that is a time. It returns false for any other
// value, and for the last nanosecond of the range: no time can follow it.
func ParseTime(value string) (time.Time, bool) {
	if value == "" { // most often; an error would be allocated
		return time.Time{}, false
	}
	nanos, err := strconv.ParseInt(value, 10, 64)
	if err != nil || nanos <= 0 || nanos == math.MaxInt64 {
		return time.Time{}, false
	}
	return time.Unix(0, nanos), true
}
