package podindex

import (
	"slices"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// firstTargets returns the first names of the selected pods, sorted. Events keep them up to
// date. Only when one of the pods is removed, and more are selected than are named, does the
// next call visit all selected pods.
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

// targetCame updates the names after a pod was selected.
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

// targetWent updates the names after a pod is no longer selected.
func (r *ruleset) targetWent(name string) {
	i, found := slices.BinarySearch(r.targets, name)
	switch {
	case !found:
	case len(r.selected) >= len(r.targets):
		r.targets = nil // the next name is not known
	default:
		r.targets = slices.Delete(slices.Clone(r.targets), i, i+1)
	}
}
