package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

// Pending is an external change that a pod waits for: its traffic must go off before an
// operation, or on before it is available.
type Pending struct {
	// Reason is ReasonPreparing or ReasonCompleting.
	Reason string

	// Since is when the wait began, as labels and conditions show it.
	Since time.Time

	// Finalizers are the finalizers that hold back the operation, or the missing finalizers;
	// sorted. It is empty while the pod waits for the kubelet or for its drain endpoint.
	Finalizers []string

	// Drains is true if the pod waits for its drain endpoint.
	Drains bool

	// Unknown is true if no employer is known of the first finalizer.
	Unknown bool

	// Text names employers and finalizers. It is the same as long as they are.
	Text string
}

const (
	// maxPendingFinalizers and maxPendingName bound the text of a Pending.
	maxPendingFinalizers, maxPendingName = 3, 200
)

// FindPending returns the change of traffic that a pod waits for. It returns false for a pod
// that waits for a rule, for the operation itself, or not at all.
func FindPending(p PodFacts) (Pending, bool) {
	if p.Terminating || !p.Controlled() {
		return Pending{}, false
	}
	if since, ok := p.PreparingSince(); ok {
		return p.pendingOff(since)
	}
	return p.pendingOn()
}

// pendingOff returns the reasons for which traffic is still on although an id prepares.
func (f PodFacts) pendingOff(since time.Time) (Pending, bool) {
	pending := Pending{Reason: appsv1alpha1.ReasonPreparing, Since: since}
	for _, name := range f.Finalizers {
		if IsProtectionFinalizer(name) {
			pending.Finalizers = append(pending.Finalizers, name)
		}
	}
	slices.Sort(pending.Finalizers)
	switch {
	case len(pending.Finalizers) > 0:
		pending.Unknown = len(f.employersFor(pending.Finalizers[0])) == 0
		pending.Text = "waits for " + f.named(pending.Finalizers, func(name string, employers []string) string {
			if len(employers) == 0 {
				return fmt.Sprintf("an unknown owner to take finalizer %s off (annotation %s does not name it)", name, appsv1alpha1.AvailableConditionsAnnotationKey)
			}
			return fmt.Sprintf("%s to confirm that traffic is off (finalizer %s)", strings.Join(employers, ", "), name)
		})
		return pending, true
	case f.Gate == GateFalse && f.Ready:
		pending.Text = "waits for the kubelet to make the pod unready: its readiness gate is False and the pod is Ready"
		return pending, true
	case f.DrainEndpoint.Port != 0 && !f.Drained && (!f.Ready || f.Gate == GateMissing):
		pending.Drains = true
		pending.Text = fmt.Sprintf("waits up to %s for the drain endpoint %s to confirm that no connection is left", f.DrainEndpoint.Timeout, f.DrainEndpoint)
		if f.DrainAnswer != "" {
			pending.Text += ": it " + f.DrainAnswer
		}
		return pending, true
	default:
		return Pending{}, false
	}
}

// pendingOn returns the missing finalizers if nothing else keeps the pod from being available.
func (f PodFacts) pendingOn() (Pending, bool) {
	m := machine{facts: f, labels: f.Labels}
	_, available := f.Labels[appsv1alpha1.ServiceAvailableLabelKey]
	missing := slices.DeleteFunc(f.ExpectedFinalizers(), func(name string) bool { return slices.Contains(f.Finalizers, name) })
	if available || len(missing) == 0 || !f.Ready || f.Gate == GateFalse || f.Gate == GateUnset || m.unfinished() || m.stayOffline() {
		return Pending{}, false
	}
	pending := Pending{Reason: appsv1alpha1.ReasonCompleting, Since: f.ReadySince, Finalizers: missing}
	if f.GateSince.After(pending.Since) {
		pending.Since = f.GateSince
	}
	pending.Text = "waits for " + f.named(missing, func(name string, employers []string) string {
		return fmt.Sprintf("%s to confirm that traffic is on (finalizer %s is missing)", strings.Join(employers, ", "), name)
	})
	return pending, true
}

// PreparingSince returns when the first id of the pod began to wait for its traffic to go off.
func (f PodFacts) PreparingSince() (since time.Time, ok bool) {
	for _, id := range operationIDs(f.Labels) {
		for _, prefix := range []string{appsv1alpha1.PrepareLabelPrefix, appsv1alpha1.PreparingLabelPrefix} {
			value, _ := labelValue(f.Labels, prefix, id)
			at, parsed := ParseTime(value)
			if parsed && (!ok || at.Before(since)) {
				since, ok = at, true
			}
		}
	}
	return since, ok
}

// employersFor returns the employers that expect a finalizer, sorted.
func (f PodFacts) employersFor(finalizer string) []string {
	var employers []string
	for employer, name := range f.Expected {
		if name == finalizer {
			employers = append(employers, text.Line(employer, maxPendingName))
		}
	}
	slices.Sort(employers)
	return employers[:min(len(employers), maxPendingFinalizers)]
}

// named describes the first finalizers.
func (f PodFacts) named(finalizers []string, words func(name string, employers []string) string) string {
	var parts []string
	for _, name := range finalizers[:min(len(finalizers), maxPendingFinalizers)] {
		parts = append(parts, words(text.Line(name, maxPendingName), f.employersFor(name)))
	}
	if more := len(finalizers) - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(parts, ", and ")
}
