package podfacts_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/state/podfacts"
	"github.com/podops-dev/podops/test/builders"
)

const drainSettle = 2 * time.Second

// endpoints play the drain endpoints of pods: a call takes a while, and its answer is what left has for the address then.
type endpoints struct {
	takes time.Duration

	mu    sync.Mutex
	left  map[string]int
	calls map[string]int
	most  int // calls at a time
	now   int
}

func (e *endpoints) Drain(ctx context.Context, address string, _ lifecycle.DrainEndpoint) (bool, string) {
	e.count(address, 1)
	defer e.count(address, -1)
	select {
	case <-ctx.Done():
		return false, "cannot be reached"
	case <-time.After(e.takes):
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.left[address] > 0 {
		return false, "answers 202"
	}
	return true, "answers 200"
}

// count counts a call that begins (1) or ends (-1).
func (e *endpoints) count(address string, by int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls[address] += max(by, 0)
	e.now += by
	e.most = max(e.most, e.now)
}

// atATime returns how many calls ran at a time.
func (e *endpoints) atATime() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.most
}

// set sets the connections of a pod.
func (e *endpoints) set(address string, left int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.left[address] = left
}

// called returns the number of calls to a pod.
func (e *endpoints) called(address string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls[address]
}

// draining is a Gatherer over pods that no Service selects. It runs in a synctest bubble, whose clock it reads.
type draining struct {
	*testing.T
	*endpoints
	gatherer *podfacts.Gatherer
	recorder *events.FakeRecorder
}

func newDraining(t *testing.T) *draining {
	d := &draining{T: t, endpoints: &endpoints{takes: 10 * time.Millisecond, left: map[string]int{}, calls: map[string]int{}}, recorder: events.NewFakeRecorder(10)}
	cached := reader()
	drains := podfacts.NewDrains(d.endpoints, d.recorder, lifecycle.Options{Settle: drainSettle}, clock.RealClock{})
	d.gatherer = podfacts.New(cached, cached, drains, clock.RealClock{})
	return d
}

// preparing returns a pod whose traffic is off, with a Service that it settles for.
func preparing(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := builders.MakePod(name).Preparing("a", "upgrade").Gate(false).UnreadyByGate(builders.Epoch).
		Annotation(appsv1alpha1.DrainEndpointAnnotationKey, ":8081/drain").Annotation(appsv1alpha1.SettleTimeAnnotationKey, "2s").Obj()
	pod.Status.PodIP = name
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", Started: ptr.To(true)}}
	for _, edit := range change {
		edit(pod)
	}
	return pod
}

// gather returns the facts of a pod, with every call that ends at this time.
func (d *draining) gather(pod *corev1.Pod) lifecycle.PodFacts {
	d.Helper()
	facts, err := d.gatherer.Gather(d.Context(), pod)
	if err != nil {
		d.Fatal(err)
	}
	synctest.Wait()
	return facts
}

// until gathers as the reconciler does, when the facts say, until the pod is drained, and returns after which time.
func (d *draining) until(pod *corev1.Pod, most time.Duration) time.Duration {
	d.Helper()
	begin := time.Now()
	for time.Since(begin) <= most {
		facts := d.gather(pod)
		if facts.Drained {
			return time.Since(begin)
		}
		wake := lifecycle.Advance(facts, lifecycle.Permits{}, lifecycle.Options{Settle: drainSettle}, time.Now()).Wake
		time.Sleep(max(wake, time.Millisecond))
	}
	d.Fatalf("the pod is not drained after %s and %v calls", most, d.calls)
	return 0
}

func TestAPodIsDrainedOnceItsEndpointConfirms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDraining(t)
		d.set("10.0.0.1", 1)
		pod := preparing("10.0.0.1")
		time.AfterFunc(drainSettle-time.Millisecond, func() {
			if d.called("10.0.0.1") > 0 {
				t.Error("the endpoint is called before traffic is off")
			}
		})
		time.AfterFunc(10*time.Second, func() { d.set("10.0.0.1", 0) })
		took := d.until(pod, time.Minute)
		if took < 10*time.Second || took > 12500*time.Millisecond || d.called("10.0.0.1") < 8 || d.called("10.0.0.1") > 11 {
			t.Errorf("drained after %s and %d calls", took, d.called("10.0.0.1"))
		}
		if len(d.recorder.Events) > 0 {
			t.Error("an event reports it")
		}
	})
}

func TestAnIdlePodWaitsForOneAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDraining(t)
		if took := d.until(preparing("10.0.0.1"), time.Minute); took > drainSettle+100*time.Millisecond || d.called("10.0.0.1") != 1 {
			t.Errorf("drained after %s and %d calls", took, d.called("10.0.0.1"))
		}
	})
}

func TestADrainEndsAtItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDraining(t)
		d.set("10.0.0.1", 1)
		if took := d.until(preparing("10.0.0.1"), time.Minute); took < 32*time.Second || took > 34*time.Second {
			t.Errorf("ended after %s, want the settle time and %s", took, lifecycle.DefaultDrainTimeout)
		}
		pod := preparing("10.0.0.1")
		d.gather(pod)
		if len(d.recorder.Events) != 1 {
			t.Fatalf("%d events", len(d.recorder.Events))
		}
		if text := <-d.recorder.Events; !strings.Contains(text, podfacts.EventDrainTimedOut) || !strings.Contains(text, "within 30s that no connection is left: it answers 202") {
			t.Errorf("event %q", text)
		}
	})
}

// TestAnAnswerCountsForOnePreparation shows that a pod which had traffic again is called again, also if no facts were gathered
// in between, and that a call which began before does not count.
func TestAnAnswerCountsForOnePreparation(t *testing.T) {
	for name, between := range map[string]func(*draining){
		"gathered":     func(d *draining) { d.gather(preparing("10.0.0.1", serves)) },
		"not gathered": func(*draining) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDraining(t)
				d.until(preparing("10.0.0.1"), time.Minute)
				between(d)
				d.set("10.0.0.1", 1)
				again := preparing("10.0.0.1", func(pod *corev1.Pod) {
					pod.Labels[appsv1alpha1.PrepareLabelPrefix+"/a"] = "99999999999"
					pod.Labels[appsv1alpha1.PreparingLabelPrefix+"/a"] = "99999999999"
				})
				time.Sleep(drainSettle)
				if facts := d.gather(again); facts.Drained {
					t.Error("an answer of the first preparation counts for the second")
				}
				d.until(again, time.Minute)
			})
		})
	}
}

func TestALateCallDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDraining(t)
		pod := preparing("10.0.0.1", noSettle)
		d.takes = 3 * time.Second
		d.gather(pod) // which begins a call
		time.Sleep(time.Second)
		d.gather(preparing("10.0.0.1", serves))
		d.gather(pod) // which begins a call of its own
		d.set("10.0.0.1", 0)
		time.Sleep(2500 * time.Millisecond) // the first call has ended
		if facts := d.gather(pod); facts.Drained || d.called("10.0.0.1") != 2 {
			t.Errorf("drained %t after %d calls", facts.Drained, d.called("10.0.0.1"))
		}
		d.until(pod, time.Minute)
	})
}

func TestOnlyRunningPodsAreCalled(t *testing.T) {
	for sentence, tc := range map[string]struct {
		change  func(*corev1.Pod)
		drained bool
		calls   int
	}{
		"a pod that runs":                   {calls: 1},
		"a pod without statuses":            {change: func(pod *corev1.Pod) { pod.Status.ContainerStatuses = nil }, calls: 1},
		"a pod whose only container waits":  {change: func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0].Started = ptr.To(false) }, drained: true},
		"a pod without an address":          {change: func(pod *corev1.Pod) { pod.Status.PodIP = "" }, drained: true},
		"a pod that serves":                 {change: serves},
		"a pod that terminates":             {change: func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: builders.Epoch} }},
		"a pod that a finalizer protects":   {change: func(pod *corev1.Pod) { pod.Finalizers = []string{finalizer} }},
		"a pod without the annotation":      {change: func(pod *corev1.Pod) { delete(pod.Annotations, appsv1alpha1.DrainEndpointAnnotationKey) }},
		"a pod in the network of its node":  {change: func(pod *corev1.Pod) { pod.Spec.HostNetwork = true }},
		"a pod without the control label":   {change: func(pod *corev1.Pod) { delete(pod.Labels, appsv1alpha1.ControlLabelKey) }},
		"a pod with the other of two ready": {change: oneOfTwo, calls: 1},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDraining(t)
				pod := preparing("10.0.0.1", noSettle)
				if tc.change != nil {
					tc.change(pod)
				}
				facts := d.gather(pod)
				time.Sleep(time.Second)
				if facts.Drained != tc.drained || d.called("10.0.0.1") != tc.calls {
					t.Errorf("drained %t after %d calls, want %t and %d", facts.Drained, d.called("10.0.0.1"), tc.drained, tc.calls)
				}
			})
		})
	}
}

// TestPodsThatHangDelayTheirNamespaceOnly shows that a namespace with many hanging endpoints does not delay another.
func TestPodsThatHangDelayTheirNamespaceOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDraining(t)
		d.takes = 3 * time.Second
		for i := range 500 {
			pod := preparing(fmt.Sprintf("10.1.0.%d", i), noSettle)
			pod.Namespace = "hangs"
			d.gather(pod)
		}
		pod := preparing("10.0.0.1", noSettle)
		if took := d.until(pod, time.Minute); took > 5*time.Second {
			t.Errorf("drained after %s", took)
		}
		if diff := cmp.Diff(17, d.atATime()); diff != "" {
			t.Errorf("calls at a time, 16 of a namespace (-want +got):\n%s", diff)
		}
		time.Sleep(time.Minute) // until the last call has ended
	})
}

func noSettle(pod *corev1.Pod) { pod.Annotations[appsv1alpha1.SettleTimeAnnotationKey] = "0s" }

func serves(pod *corev1.Pod) {
	serving := builders.MakePod(pod.Name).Available().Obj()
	pod.Labels, pod.Status.Conditions = serving.Labels, serving.Status.Conditions
}

func oneOfTwo(pod *corev1.Pod) {
	pod.Status.ContainerStatuses = append([]corev1.ContainerStatus{{Name: "init", Started: ptr.To(false)}}, pod.Status.ContainerStatuses...)
}
