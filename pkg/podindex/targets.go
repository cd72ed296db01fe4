package podindex

import (
	"slices"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// firstTargets are the first names of the selected pods, sorted. They are kept up to
// date as pods come and go; only when one of them goes, and others were left out, does
// it cost as much as there are selected pods to find the next.
func (r *ruleset) firstTargets() []string {
	if r.targets == nil && len(r.selected) > 0 {
		names := make([]string, 0, len(r.selected))
		for _, p := range r.selected {
			names = append(names, p.fact.Name)
		}
		slices.Sort(names)
		r.targets = slices.Clone(names[:min(len(names), appsv1alpha1.MaxStatusTargets)])
	}
	return r.targets
}

// targetCame keeps the names up to date with a pod that was just selected.
func (r *ruleset) targetCame(name string) {
	if r.targets == nil {
		return
	}
	i, _ := slices.BinarySearch(r.targets, name)
	if i == appsv1alpha1.MaxStatusTargets {
		return
	}
	targets := slices.Insert(slices.Clone(r.targets), i, name)
	r.targets = targets[:min(len(targets), appsv1alpha1.MaxStatusTargets)]
}

// targetWent keeps the names up to date with a pod that is no longer selected.
func (r *ruleset) targetWent(name string) {
	i, found := slices.BinarySearch(r.targets, name)
	switch {
	case !found:
	case len(r.selected) >= len(r.targets):
		r.targets = nil // somebody moves up who is not known
	default:
		r.targets = slices.Delete(slices.Clone(r.targets), i, i+1)
	}
}
