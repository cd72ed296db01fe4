package permit

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Live returns the reservations of a record that may still be stamped, because their pods are at
// the recorded resourceVersion. at returns the resourceVersion of a pod, or "" when there is no
// such pod. The result is only valid for a view that reaches the record: an older view shows a pod
// as it was before it was reserved.
func Live(record *appsv1alpha1.PermitRecord, at func(types.UID) string) []appsv1alpha1.ReservedPod {
	if record == nil {
		return nil
	}
	var live []appsv1alpha1.ReservedPod
	for _, reserved := range record.Reserved {
		if version := at(reserved.UID); version != "" && version == reserved.ResourceVersion {
			live = append(live, reserved)
		}
	}
	return live
}

// Reaches reports whether a view that goes up to viewResourceVersion contains everything
// that the record refers to: the changes that made earlier reservations dead, and every
// reserved pod at its recorded resourceVersion or later. No view reaches a resourceVersion
// that cannot be compared.
func Reaches(viewResourceVersion string, record *appsv1alpha1.PermitRecord) bool {
	if record == nil {
		return true
	}
	if record.ViewResourceVersion != "" && !reaches(viewResourceVersion, record.ViewResourceVersion) {
		return false
	}
	return !slices.ContainsFunc(record.Reserved, func(reserved appsv1alpha1.ReservedPod) bool {
		return !reaches(viewResourceVersion, reserved.ResourceVersion)
	})
}

func reaches(view, required string) bool {
	order, err := resourceversion.CompareResourceVersion(view, required)
	return err == nil && order >= 0
}

// NextRecord returns the record to write, which has the new list of reservations, the recent permits
// and the numbers of pods to remember (Plan.Recent and Plan.Owners of the PodTransitionRule,
// empty if it keeps no such list), and how far the view of a reader must reach; nil without any of them. Reservations
// of the old record that are missing from the new list are dead; a reader may rely on that
// only if its view contains the evidence: the pod at its present resourceVersion, or, for a
// deleted pod, all of this view.
func NextRecord(
	old *appsv1alpha1.PermitRecord, next appsv1alpha1.PermitRecord, at func(types.UID) string, viewResourceVersion string,
) *appsv1alpha1.PermitRecord {
	if old == nil {
		if len(next.Reserved)+len(next.Recent)+len(next.Owners) == 0 {
			return nil
		}
		return &next
	}
	kept := map[types.UID]string{}
	for _, r := range next.Reserved {
		kept[r.UID] = r.ResourceVersion
	}
	next.ViewResourceVersion = old.ViewResourceVersion
	for _, r := range old.Reserved {
		if kept[r.UID] == r.ResourceVersion {
			continue
		}
		evidence := at(r.UID)
		if evidence == "" {
			evidence = viewResourceVersion
		}
		next.ViewResourceVersion = later(next.ViewResourceVersion, evidence)
	}
	return &next
}

// later returns the larger of two resourceVersions, and b if a cannot be compared.
func later(a, b string) string {
	if order, err := resourceversion.CompareResourceVersion(a, b); err == nil && order >= 0 {
		return a
	}
	return b
}
