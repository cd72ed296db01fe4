package podwriter

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/runtime/fairshare"
	"github.com/podops-dev/podops/test/builders"
)

func expectEvents(t *testing.T, what string, f *fixture, want ...string) {
	t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), f.recorded()); diff != "" {
		t.Errorf("%s: events differ (-want +got):\n%s", what, diff)
	}
}

// TestAWriteHasOneEventAtMost shows the events of the permit and of unusual steps.
func TestAWriteHasOneEventAtMost(t *testing.T) {
	closed, open := false, true
	permit := lifecycle.Transition{Step: lifecycle.StepPermit, ID: "a", Type: "upgrade", Rules: []string{"web/approved", "web/slots"}}
	other := lifecycle.Transition{Step: lifecycle.StepPermit, ID: "b", Type: "restart"}
	for name, tc := range map[string]struct {
		change lifecycle.Change
		want   []string
	}{
		"nothing": {},
		"steps of clients, and steps that other events report": {change: lifecycle.Change{Gate: &open, Transitions: []lifecycle.Transition{
			{Step: lifecycle.StepBegin, ID: "a", Type: "upgrade"}, {Step: lifecycle.StepFinish, ID: "a", Type: "upgrade"},
			{Step: lifecycle.StepUndo, ID: "a", Type: "upgrade"}, {Step: lifecycle.StepCancel, ID: "a"}, {Step: lifecycle.StepPostCheck, ID: "a"},
			{Step: lifecycle.StepOperate, ID: "a"}, {Step: lifecycle.StepPostPermit, ID: "a"}, {Step: lifecycle.StepAvailable},
		}}},
		"a permit": {change: lifecycle.Change{Gate: &closed, Transitions: []lifecycle.Transition{permit}}, want: []string{
			"Normal Permitted operation upgrade of id a passed its PreCheck rules (web/approved, web/slots) after 60s: readiness gate False, traffic goes off",
		}},
		"two permits of a pod without the gate": {change: lifecycle.Change{Transitions: []lifecycle.Transition{permit, other}}, want: []string{
			"Normal Permitted operation upgrade of id a passed its PreCheck rules (web/approved, web/slots) after 60s; " +
				"operation restart of id b passed its PreCheck rules: traffic goes off",
		}},
		"a pod that the user takes off traffic": {change: lifecycle.Change{Gate: &closed}, want: []string{
			"Normal ServiceReady readiness gate False, traffic goes off",
		}},
		"a pod that is no longer under PodOps": {change: lifecycle.Change{Gate: &open, Transitions: []lifecycle.Transition{{Step: lifecycle.StepRelease}}}, want: []string{
			"Normal Released the pod is no longer under PodOps: its lifecycles have ended",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, waitingPod())
			recordTransitions(f.events, f.pod(t), tc.change, f.clock.Now())
			expectEvents(t, "the write", f, tc.want...)
		})
	}
}

// TestAvailability shows that a pod has one event when it becomes available by any request, with the
// steps since the previous event.
func TestAvailability(t *testing.T) {
	web := func() *builders.PodBuilder { return builders.MakePod("web-0") }
	preparing := web().Gate(false).Ready().Preparing("a", "upgrade").Obj()
	for i := range preparing.Status.Conditions {
		if preparing.Status.Conditions[i].Type == appsv1alpha1.ServiceReadyGate {
			preparing.Status.Conditions[i].LastTransitionTime.Time = builders.Epoch.Add(48 * time.Second)
		}
	}
	unready := web().Gate(true).Unready(builders.Epoch.Add(30 * time.Second)).Obj()
	fresh := web().Obj()
	fresh.CreationTimestamp.Time = builders.Epoch.Add(52 * time.Second)
	terminating := web().Gate(true).Unready(builders.Epoch).Terminating(builders.Epoch).Obj()
	passed := []lifecycle.Transition{{Step: lifecycle.StepPostPermit, ID: "a", Rules: []string{"web/checked"}}}
	for name, tc := range map[string]struct {
		before      *corev1.Pod
		transitions []lifecycle.Transition
		want        []string
	}{
		"after an operation": {before: preparing, transitions: passed, want: []string{
			"Normal ServiceAvailable the pod may serve again after operation upgrade of id a: PostCheck rules passed (web/checked), readiness gate True, off traffic for 12s",
		}},
		"after an operation that was undone": {before: preparing, want: []string{
			"Normal ServiceAvailable the pod may serve again after operation upgrade of id a: off traffic for 12s",
		}},
		"a new pod":                         {before: fresh, want: []string{"Normal ServiceAvailable the pod may serve for the first time, 8s after its creation"}},
		"a pod that was unready by itself":  {before: unready, want: []string{"Normal ServiceAvailable the pod may serve again after 30s"}},
		"a pod that was seen available":     {before: web().Available().Obj()},
		"a pod that was terminating before": {before: terminating},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, waitingPod())
			f.writer.Observe(tc.before)
			f.writer.absences.checked(tc.before, tc.transitions, f.clock.Now())
			expectEvents(t, "before", f)
			after := web().Available().Obj()
			after.UID = tc.before.UID
			f.writer.Observe(after)
			expectEvents(t, "after", f, tc.want...)
			f.writer.Observe(after)
			expectEvents(t, "seen again", f)
		})
	}
}

// TestAbsencesAreBounded shows that pods that are deleted without an event do not pile up, and that a
// namespace with many of them costs no event of another namespace its details.
func TestAbsencesAreBounded(t *testing.T) {
	f := newFixture(t, waitingPod())
	other := builders.MakePod("web-0").Namespace("other").UID("other").Obj()
	f.writer.Observe(other)
	pod := builders.MakePod("web-0").Obj()
	for i := range 2 * absenceBytes / fairshare.EntryBytes {
		pod.UID = types.UID(fmt.Sprint(i))
		f.writer.Observe(pod)
	}
	if got := f.writer.absences.of.Bytes(); got > absenceBytes {
		t.Errorf("%d bytes are kept, want %d at most", got, absenceBytes)
	}
	if _, ok := f.writer.absences.of.Get(other.UID); !ok {
		t.Error("the absence in another namespace is lost")
	}
	pod.Labels[appsv1alpha1.ControlLabelKey] = "no"
	f.writer.Observe(pod)
	if _, ok := f.writer.absences.of.Get(pod.UID); ok {
		t.Error("a pod that is no longer under PodOps is kept")
	}
}

// TestAvailabilityBeforeTheResponse has the watch deliver a pod before the response to the write that makes it available.
func TestAvailabilityBeforeTheResponse(t *testing.T) {
	f := newFixture(t, builders.MakePod("web-0").Gate(false).Ready().Preparing("a", "upgrade").Obj())
	f.writer.Observe(f.pod(t))
	f.stored = func() { f.writer.Observe(f.pod(t)) }
	change := lifecycle.Change{
		Set:         map[string]string{appsv1alpha1.ServiceAvailableLabelKey: "1"},
		Transitions: []lifecycle.Transition{{Step: lifecycle.StepPostPermit, ID: "a"}, {Step: lifecycle.StepAvailable}},
	}
	if err := f.writer.Write(t.Context(), f.pod(t), change); err != nil {
		t.Fatal(err)
	}
	f.writer.Observe(f.pod(t))
	if got := f.recorded(); len(got) != 1 {
		t.Errorf("events %q, want one", got)
	}
}
