package lifecycle_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
)

// fairRounds bounds how many rounds a pod needs to come to rest once every actor is correct:
// one round to take traffic off and operate, one to pass PostCheck and put traffic on,
// one more when a change of the gate must be seen first, and one to see that it rests.
const fairRounds = 4

// TestEverySchedule lets the cast act on one pod in any order. The model and the checks
// of every write detect forbidden states; then every actor is correct, and the pod must
// come to rest.
func TestEverySchedule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCast(t)
		t.Repeat(actionsOf(c))
		c.settle(t)
	})
}

func actionsOf(c *cast) map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"begin": c.Begin, "finish": c.Finish, "operate": c.Operate, "undo": c.Undo,
		"copy": c.Copy, "overwrite": c.Overwrite, "forge": c.Forge, "drop": c.Drop, "user": c.User,
		"protect": c.Protect, "serve": c.Serve, "expect": c.Expect,
		"rules": c.Rules, "controller": c.Controller, "fresh controller": c.FreshController, "renew": c.Renew,
		"kubelet": c.Kubelet, "containers": c.Containers, "gate": c.Gate, "time": c.Time, "delete": c.Delete,
		"clock": c.Clock, "employers": c.Employers, "connections": c.Connections,
	}
}

// TestEveryScheduleWithoutAdmission lets labels change without admission. No permit can be
// traced then; the other properties must still hold: operate is granted with traffic off only,
// the gate and service-available agree with the labels, labels of other owners do not change,
// and the pod comes to rest.
func TestEveryScheduleWithoutAdmission(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCast(t)
		c.model = nil
		t.Repeat(map[string]func(*rapid.T){
			"chaos":      c.Chaos,
			"controller": c.ChaosController,
			"kubelet":    c.Kubelet, "containers": c.Containers, "gate": c.Gate, "time": c.Time,
			"clock": c.Clock, "employers": c.Employers, "connections": c.Connections,
		})
		c.settle(t)
	})
}

// Chaos writes any labels of the lifecycle, and any finalizers, without admission.
func (c *cast) Chaos(t *rapid.T) {
	key := rapid.OneOf(rapid.Custom(drawOwnedKey), rapid.Custom(drawClientKey))
	set := rapid.MapOfN(key, rapid.SampledFrom([]string{c.stamp(), "upgrade", "restart", ""}), 0, 4).Draw(t, "set")
	remove := rapid.SliceOfN(key, 0, 4).Draw(t, "remove")
	finalizers := rapid.SampledFrom([][]string{{}, {lbFinalizer}, {otherFinalizer}}).Draw(t, "finalizers")
	c.sim.bypass(func(pod *corev1.Pod) {
		for _, key := range remove {
			delete(pod.Labels, key)
		}
		maps.Copy(pod.Labels, set)
		pod.Finalizers = finalizers
	})
}

// ChaosController permits all waiting ids.
func (c *cast) ChaosController(t *rapid.T) { c.advanceAll(t) }

func (c *cast) advanceAll(t failer) {
	permits := lifecycle.Permits{PreCheck: map[string]string{}, PostCheck: map[string]string{}}
	for _, w := range lifecycle.WaitingIDs(lifecycle.NewPodFacts(c.sim.pod)) {
		permitsOf(permits, string(w.Stage))[w.ID] = w.Attempt
	}
	before := c.sim.pod
	c.sim.reconcile(t, permits)
	checkForeignWithoutAdmission(t, before.Labels, c.sim.pod.Labels)
	checkAvailable(t, before, c.sim.pod)
	checkGate(t, c.sim.pod)
	checkPermissions(t, c.sim.pod.Labels)
	for _, id := range idsIn(c.sim.pod.Labels) {
		if has(c.sim.pod.Labels, appsv1alpha1.OperateLabelPrefix, id) && !has(before.Labels, appsv1alpha1.OperateLabelPrefix, id) {
			checkTrafficIsOff(t, before, c.sim.pod)
		}
	}
}

// checkForeignWithoutAdmission checks the same as checkForeign where an id may lack its type.
func checkForeignWithoutAdmission(t failer, before, after map[string]string) {
	t.Helper()
	checkForeign(t, before, after)
	for _, id := range idsIn(after) {
		if has(after, appsv1alpha1.OperatingLabelPrefix, id) && !has(before, appsv1alpha1.OperatingLabelPrefix, id) {
			t.Fatalf("%s has begun without a request", id)
		}
	}
}

// settle lets every actor act correctly, in turn, until the pod is at rest: deleted, released,
// or available without lifecycle labels.
func (c *cast) settle(t failer) {
	t.Helper()
	c.repair(t)
	for range fairRounds {
		if c.sim.gone() {
			return
		}
		c.fairRound(t)
	}
	if !c.sim.gone() && !c.atRest() {
		t.Fatalf("after %d fair rounds the pod is not at rest: %v %v", fairRounds, c.sim.pod.Labels, c.sim.pod.Finalizers)
	}
}

// repair is the user who reverts the settings that keep the pod from serving, and operation
// controllers that give up operations without a type.
func (c *cast) repair(t failer) {
	c.sim.kubelet.Healthy, c.sim.drained = true, true
	c.request(t, func(pod *corev1.Pod) {
		delete(pod.Labels, appsv1alpha1.StayOfflineLabelKey)
		if lifecycle.NewPodFacts(pod).ExpectedFinalizersErr != nil {
			expect(pod, []string{lbFinalizer})
		}
		setFinalizer(pod, otherFinalizer, false)
		for _, id := range idsIn(pod.Labels) {
			if pod.Labels[idLabel(appsv1alpha1.OperationTypeLabelPrefix, id)] == "" && has(pod.Labels, appsv1alpha1.OperatingLabelPrefix, id) {
				pod.Labels[idLabel(appsv1alpha1.UndoOperationTypeLabelPrefix, id)] = ""
			}
		}
	})
}

// fairRound advances the clock, and then lets every actor act once.
func (c *cast) fairRound(t failer) {
	c.sim.pass(2 * time.Minute)
	for _, act := range []func(failer){c.reconcile, c.serve, c.reconcile, c.finishOperated} {
		if c.sim.gone() {
			return
		}
		c.sim.report()
		c.sim.pass(10 * time.Second)
		act(t)
	}
}

func (c *cast) reconcile(t failer) {
	if c.model == nil {
		c.advanceAll(t)
		return
	}
	c.evaluate()
	c.advance(t, c.newest())
}

func (c *cast) atRest() bool {
	pod := c.sim.pod
	_, available := pod.Labels[appsv1alpha1.ServiceAvailableLabelKey]
	if facts := lifecycle.NewPodFacts(pod); !facts.Controlled() {
		return !available && facts.Gate != lifecycle.GateFalse && facts.Gate != lifecycle.GateUnset
	}
	return available && len(idsIn(pod.Labels)) == 0
}

// TestThirtyIDs runs 30 lifecycles on one pod at once: all complete, in as many rounds as
// one of them needs, and the pod is available only after the last.
func TestThirtyIDs(t *testing.T) {
	pod := &corev1.Pod{}
	pod.Labels = map[string]string{appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue}
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: appsv1alpha1.ServiceReadyGate}}
	pod.Finalizers = []string{lbFinalizer}
	expect(pod, []string{lbFinalizer})
	c := newCast(pod, lifecycle.Options{})
	c.request(t, func(pod *corev1.Pod) {
		for i := range 30 {
			c.begin(pod, fmt.Sprintf("id-%02d", i), fmt.Sprintf("type-%d", i%3))
		}
	})
	c.sim.report()
	c.reconcile(t)
	c.sim.report()
	c.serve(t)
	granted := slices.DeleteFunc(idsIn(c.sim.pod.Labels), func(id string) bool {
		return !has(c.sim.pod.Labels, appsv1alpha1.OperateLabelPrefix, id)
	})
	if len(granted) != 30 {
		t.Fatalf("operate is granted to %d of 30 ids: %v", len(granted), granted)
	}
	if perID := float64(len(c.sim.pod.Labels)) / 30; perID > 5 {
		t.Errorf("%.1f labels for each id", perID)
	}
	c.finishAllButOne(t, granted)
	c.reconcile(t)
	if _, available := c.sim.pod.Labels[appsv1alpha1.ServiceAvailableLabelKey]; available {
		t.Errorf("available while %s is operating", granted[0])
	}
	c.settle(t)
}

func (c *cast) finishAllButOne(t failer, ids []string) {
	for _, id := range ids[1:] {
		c.request(t, func(pod *corev1.Pod) { delete(pod.Labels, idLabel(appsv1alpha1.OperatingLabelPrefix, id)) })
	}
}
