package rule

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// PodDetails has what a pod runs, and how that runs. Like PodFact it is immutable once published.
type PodDetails struct {
	// Version is PodFact.Version for readers of details: it changes with them as well.
	Version string

	// Containers have names, images, requests and limits, without init containers.
	Containers []corev1.Container

	// Unknown is set if the containers are not known, because they are larger than PodOps keeps.
	Unknown bool

	// Restarts is the highest restart count of a container.
	Restarts int

	// Conditions have the types, statuses, reasons and times of the conditions.
	Conditions []corev1.PodCondition

	// Started is when the kubelet took the pod; zero before.
	Started time.Time
}

// VersionWith returns the version of a pod for readers of its details, or for others.
func (p *PodFact) VersionWith(details bool) string {
	if details {
		return p.Details.Version
	}
	return p.Version
}

// ReadySince returns when the condition Ready became true; zero while it is not.
func (d PodDetails) ReadySince() time.Time {
	for i := range d.Conditions {
		if c := &d.Conditions[i]; c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// Equal reports whether rules read the same. It does not compare the versions.
func (d PodDetails) Equal(other PodDetails) bool {
	return d.Unknown == other.Unknown && d.Restarts == other.Restarts && d.Started.Equal(other.Started) &&
		slices.EqualFunc(d.Conditions, other.Conditions, func(a, b corev1.PodCondition) bool {
			return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.LastTransitionTime.Equal(&b.LastTransitionTime)
		}) && sameContainers(d.Containers, other.Containers)
}

// sameContainers compares names, images, requests and limits. The pods of a revision share their containers.
func sameContainers(a, b []corev1.Container) bool {
	if len(a) > 0 && len(a) == len(b) && &a[0] == &b[0] {
		return true
	}
	same := equality.Semantic
	return slices.EqualFunc(a, b, func(x, y corev1.Container) bool {
		return x.Name == y.Name && x.Image == y.Image &&
			same.DeepEqual(x.Resources.Requests, y.Resources.Requests) && same.DeepEqual(x.Resources.Limits, y.Resources.Limits)
	})
}
