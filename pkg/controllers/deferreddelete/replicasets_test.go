package deferreddelete

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
)

const undoRequest = `patch web-0 {"metadata":{"annotations":{"podopslifecycle.kusionstack.io/pending-delete":null},"labels":{"undo-operation-type/pod-delete":"delete"},"uid":"web-0-uid"}}`

// deletesOf are the deletes of one ReplicaSet.
type deletesOf struct {
	*cluster
	deletes *ReplicaSetDeletes
}

func newDeletes(t *testing.T) deletesOf {
	t.Helper()
	w := newCluster(t)
	return deletesOf{w, NewReplicaSetDeletes(w.cache, w.recorder, w.metrics, w.clock)}
}

func (d deletesOf) cancel(t *testing.T, target int, pods ...*corev1.Pod) time.Duration {
	t.Helper()
	_, wait, err := d.deletes.Cancel(t.Context(), target, 0, pods)
	if err != nil {
		t.Fatalf("Cancel: %v", err)
	}
	return wait
}

// expectCancelled checks that the delete of web-0 was cancelled once, and why.
func (d deletesOf) expectCancelled(t *testing.T, lapse deferreddelete.Lapse) {
	t.Helper()
	if diff := cmp.Diff([]string{undoRequest}, d.sent()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{EventDeleteUndone}, d.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if got := d.cancelled(t)["reason="+string(lapse)]; got != 1 {
		t.Errorf("%v cancelled deletes are counted, want 1", got)
	}
}

func TestAPodThatIsNeededAgainIsUndone(t *testing.T) {
	d := newDeletes(t)
	if wait := d.cancel(t, 1, waiting("web-0")); wait != cancelWaitingAfter || len(d.sent()) > 0 {
		t.Errorf("again after %v, want %v", wait, cancelWaitingAfter)
	}
	d.clock.Step(cancelWaitingAfter)
	d.cancel(t, 1, waiting("web-0"))
	d.expectCancelled(t, deferreddelete.LapseUnwanted)
	d.cancel(t, 1, waiting("web-0"))
	if sent := d.sent(); len(sent) > 0 {
		t.Errorf("sent %v again, before the cache shows the first one", sent)
	}
}

func TestAPodThatIsPreparedIsUndoneAfterAWhile(t *testing.T) {
	d, pod := newDeletes(t), recorded(prepared("web-0").Obj(), byOwner)
	if wait := d.cancel(t, 1, pod); wait != cancelAfter {
		t.Errorf("again after %v, want %v", wait, cancelAfter)
	}
	d.clock.Step(cancelAfter - time.Second)
	if wait := d.cancel(t, 1, pod); wait != time.Second || len(d.sent()) > 0 {
		t.Errorf("again after %v, want another second and no request", wait)
	}
	d.clock.Step(time.Second)
	d.cancel(t, 1, pod)
	d.expectCancelled(t, deferreddelete.LapseUnwanted)
}

func TestAPodThatItsOwnerDoesNotDeleteIsUndone(t *testing.T) {
	d, pod := newDeletes(t), granted("web-0")
	if wait := d.cancel(t, 0, pod); wait != deferreddelete.OperateLapse || len(d.sent()) > 0 {
		t.Errorf("again after %v, want the time that its owner has to delete it", wait)
	}
	d.clock.Step(deferreddelete.OperateLapse)
	if forgone, _, err := d.deletes.Cancel(t.Context(), 0, 0, []*corev1.Pod{pod}); err != nil || !forgone {
		t.Errorf("forgone %t, %v", forgone, err)
	}
	d.expectCancelled(t, deferreddelete.LapseForgone)
}

// TestOthersAreNotUndone shows that only deletes for the ReplicaSet depend on its surplus.
func TestOthersAreNotUndone(t *testing.T) {
	foreign := owned("web-0").Available().Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, start)
	for name, pod := range map[string]*corev1.Pod{
		"another controller began by labels": foreign.Obj(),
		"a client wants the pod gone":        recorded(foreign.Obj(), deferreddelete.Request{Actor: deferreddelete.ActorClient}),
		"it is one too many":                 nil,
	} {
		t.Run(name, func(t *testing.T) {
			d, target := newDeletes(t), 1
			if pod == nil {
				pod, target = waiting("web-0"), 0
			}
			d.cancel(t, target, pod)
			d.clock.Step(2 * cancelAfter)
			if wait := d.cancel(t, target, pod); wait != 0 || len(d.sent()) > 0 {
				t.Errorf("again after %v or sent a request, want neither", wait)
			}
		})
	}
}

func TestADeleteThatTheOwnerNeedsAgainRestartsTheDelay(t *testing.T) {
	d, pod := newDeletes(t), recorded(prepared("web-0").Obj(), byOwner)
	d.cancel(t, 1, pod)
	d.clock.Step(cancelAfter / 2)
	d.cancel(t, 0, pod)
	d.clock.Step(cancelAfter / 2)
	if wait := d.cancel(t, 1, pod); wait != cancelAfter || len(d.sent()) > 0 {
		t.Errorf("again after %v, want the whole delay again", wait)
	}
}

func TestUndoRestoresTheDeletionCostOfAScaleDown(t *testing.T) {
	pod := owned("web-0").Available().Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, start).Obj()
	pod.Annotations = map[string]string{appsv1alpha1.PreviousDeletionCostAnnotationKey: "7", corev1.PodDeletionCost: "-2147483648"}
	d := newDeletes(t)
	d.cancel(t, 1, pod)
	d.clock.Step(cancelWaitingAfter)
	d.cancel(t, 1, pod)
	want := []string{`patch web-0 {"metadata":{"annotations":{"controller.kubernetes.io/pod-deletion-cost":"7",` +
		`"podopslifecycle.kusionstack.io/previous-deletion-cost":null},"labels":{"undo-operation-type/pod-delete":"delete"},"uid":"web-0-uid"}}`}
	if diff := cmp.Diff(want, d.sent()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// TestAnExchangeLeavesAPodThatHasChanged has a rule permit the pod while the exchange is decided: its delete goes on.
func TestAnExchangeLeavesAPodThatHasChanged(t *testing.T) {
	for name, tc := range map[string]struct {
		err    error
		events []string
	}{
		"unchanged":           {events: []string{EventDeleteUndone}},
		"permitted meanwhile": {err: apierrors.NewConflict(corev1.Resource("pods"), "web-0", nil)},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDeletes(t)
			d.err = tc.err
			pod := owned("web-0").Available().Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, start).Obj()
			pod.ResourceVersion = "7"
			cancelled, err := d.deletes.Exchange(t.Context(), pod)
			if err != nil || cancelled != (tc.err == nil) {
				t.Errorf("cancelled: %t, %v", cancelled, err)
			}
			if sent := d.sent(); len(sent) != 1 || !strings.Contains(sent[0], `"resourceVersion":"7"`) {
				t.Errorf("sent %v, want a request for this version of the pod", sent)
			}
			if diff := cmp.Diff(tc.events, d.events()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAnotherLifecycleRestartsTheDelay shows that a wait ends with its lifecycle: another controller may
// have cancelled the first delete.
func TestAnotherLifecycleRestartsTheDelay(t *testing.T) {
	d, pod := newDeletes(t), recorded(prepared("web-0").Obj(), byOwner)
	d.cancel(t, 1, pod)
	d.clock.Step(cancelAfter - time.Second)
	again := prepared("web-0").Obj()
	again.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+appsv1alpha1.PodDeleteID] = strconv.FormatInt(d.clock.Now().UnixNano(), 10)
	if wait := d.cancel(t, 1, recorded(again, byOwner)); wait != cancelAfter || len(d.sent()) > 0 {
		t.Errorf("again after %v, want the whole delay again", wait)
	}
}
