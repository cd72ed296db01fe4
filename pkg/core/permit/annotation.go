package permit

import (
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// MaxAnnotationBytes bounds the annotation of a record that is read: a full record has 13 KiB.
const MaxAnnotationBytes = 16 << 10

// Encode returns the annotation (appsv1alpha1.PermitsAnnotationKey) of a record. The names of pods are left out,
// because they are for readers of a status.
func Encode(record *appsv1alpha1.PermitRecord) string {
	permits := appsv1alpha1.DisruptionPermits{ViewResourceVersion: record.ViewResourceVersion}
	for _, reserved := range record.Reserved {
		if permits.Reserved == nil {
			permits.Reserved = map[types.UID]string{}
		}
		permits.Reserved[reserved.UID] = reserved.ResourceVersion
	}
	value, err := json.Marshal(permits)
	if err != nil {
		return "" // no value of the type is invalid
	}
	return string(value)
}

// Decode returns the record of an annotation; nil if the annotation is absent, malformed, or larger than any that
// Encode returns.
func Decode(annotation string) *appsv1alpha1.PermitRecord {
	var permits appsv1alpha1.DisruptionPermits
	if len(annotation) > MaxAnnotationBytes || json.Unmarshal([]byte(annotation), &permits) != nil ||
		len(permits.Reserved) > appsv1alpha1.MaxStatusReserved {
		return nil
	}
	record := &appsv1alpha1.PermitRecord{ViewResourceVersion: permits.ViewResourceVersion}
	for uid, resourceVersion := range permits.Reserved {
		record.Reserved = append(record.Reserved, appsv1alpha1.ReservedPod{UID: uid, ResourceVersion: resourceVersion})
	}
	slices.SortFunc(record.Reserved, ByUID)
	return record
}
