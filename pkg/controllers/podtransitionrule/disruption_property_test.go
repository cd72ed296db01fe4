package podtransitionrule

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/test/builders"
	"github.com/podops-dev/podops/test/sim"
)

// drained is a workload that is drained under a PodDisruptionBudget and a rule. Its PodDisruptionBudget has
// the status that the disruption controller wrote last, which may be older than the pods.
type drained struct {
	*harness
	pods, x, y int

	// late is for how long the status may have been older than the pods.
	late time.Duration

	// fresh are the pods that were created again after their eviction; they are not drained.
	fresh map[string]bool
	made  int
}

// owned is a pod of the workload.
func owned(i int) *builders.PodBuilder {
	return web(i).OwnedBy(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "web"})
}

// out returns how many pods are missing, unready, or may become so at any moment.
func (d *drained) out() int {
	out := d.pods - len(d.harness.pods)
	for _, pod := range d.harness.pods {
		if !d.ready(pod) || lifecycle.NewPodFacts(pod).Permitted() {
			out++
		}
	}
	return out
}

func (d *drained) ready(pod *corev1.Pod) bool { return lifecycle.NewPodFacts(pod).Ready }

// sync writes the status as the disruption controller does.
func (d *drained) sync() {
	d.late = 0
	healthy := int32(0)
	for _, pod := range d.harness.pods {
		if d.ready(pod) {
			healthy++
		}
	}
	d.disruptionBudget(pdb("web", int32(d.pods-d.x), healthy, int32(d.pods)))
}

// pass makes a round after some time. The disruption controller is behind by less than SettledFor.
func (d *drained) pass(after time.Duration) {
	if d.late+after >= evaluation.SettledFor {
		d.sync()
	}
	d.late += after
	d.step(after)
}

// kill ends the manager in a round after a number of writes to pods. The next manager remembers nothing.
func (d *drained) kill(writes int) {
	var mu sync.Mutex
	d.refuse = func(string) error {
		mu.Lock()
		defer mu.Unlock()
		if writes--; writes < 0 {
			return errConflict()
		}
		return nil
	}
	d.pass(time.Second)
	d.refuse = nil
	d.restart(Config{})
}

// begin has a pod wait to be deleted.
func (d *drained) begin(name string) {
	pod := d.harness.pods[name]
	if d.fresh[name] || len(lifecycle.NewPodFacts(pod).Labels[appsv1alpha1.OperatingLabelPrefix+"/"+appsv1alpha1.PodDeleteID]) > 0 {
		return
	}
	i, _ := strconv.Atoi(name[len("web-"):])
	d.put(owned(i).Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, builders.Epoch.Add(time.Duration(i)*time.Second)).Obj())
}

// unready has the kubelet of a permitted pod follow the gate.
func (d *drained) unready(name string) {
	pod := d.harness.pods[name].DeepCopy()
	if !lifecycle.NewPodFacts(pod).Permitted() || !d.ready(pod) {
		return
	}
	sim.SetCondition(pod, corev1.PodReady, false, "", d.clock.Now())
	d.put(pod)
}

// evict evicts a pod that is unready for it as the API server does: with the policy IfHealthyBudget, by the
// last status.
func (d *drained) evict(name string) bool {
	pod := d.harness.pods[name]
	if d.ready(pod) || !lifecycle.NewPodFacts(pod).Permitted() {
		return false
	}
	healthy := 0
	for _, other := range d.harness.pods {
		if d.ready(other) {
			healthy++
		}
	}
	if desired := d.pods - d.x; healthy < desired || desired == 0 {
		return false
	}
	delete(d.harness.pods, name)
	d.must(d.store.Delete(pod))
	return true
}

// create makes a pod that is missing again.
func (d *drained) create() {
	if len(d.harness.pods) == d.pods {
		return
	}
	d.made++
	name := fmt.Sprintf("web-%03d", 100+d.made)
	d.fresh[name] = true
	d.put(owned(100 + d.made).Obj())
}

// TestNeverMoreThanBothLimitsPermit shows that with a PodDisruptionBudget of x pods and a rule of y pods never more
// than min(x, y) are out at once, however late the kubelet and the actors are, and the disruption controller within
// evaluation.SettledFor, even if a manager is killed at any write to a pod; and that a drain ends once they are
// not.
func TestNeverMoreThanBothLimitsPermit(t *testing.T) {
	e := newTestEngine(t)
	rapid.Check(t, func(rt *rapid.T) {
		d := &drained{harness: newHarnessWith(t, e), pods: rapid.IntRange(2, 6).Draw(rt, "pods"), fresh: map[string]bool{}}
		d.x, d.y = rapid.IntRange(1, d.pods-1).Draw(rt, "x"), rapid.IntRange(1, d.pods).Draw(rt, "y")
		d.index.SetOwner(podindex.Owner{
			UID: "web", Namespace: "default", Kind: "StatefulSet", Name: "web", Desired: d.pods,
			TemplateLabels: map[string]string{"app": "web", appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue},
		})
		for i := range d.pods {
			d.put(owned(i).Obj())
		}
		withRule := rapid.Bool().Draw(rt, "rule")
		limit := d.x
		if withRule {
			d.rules("web", atMostUnavailable("most", strconv.Itoa(d.y)))
			limit = min(d.x, d.y)
		}
		d.sync()
		draw := func(rt *rapid.T) string {
			return rapid.SampledFrom(slices.Sorted(maps.Keys(d.harness.pods))).Draw(rt, "pod")
		}
		rt.Repeat(map[string]func(*rapid.T){
			"": func(rt *rapid.T) {
				if out := d.out(); out > limit {
					rt.Fatalf("%d pods are out, x is %d and y is %d", out, d.x, d.y)
				}
			},
			"begin":    func(rt *rapid.T) { d.begin(draw(rt)) },
			"round":    func(rt *rapid.T) { d.pass(time.Duration(rapid.IntRange(0, 20).Draw(rt, "seconds")) * time.Second) },
			"unready":  func(rt *rapid.T) { d.unready(draw(rt)) },
			"evict":    func(rt *rapid.T) { d.evict(draw(rt)) },
			"create":   func(*rapid.T) { d.create() },
			"sync":     func(*rapid.T) { d.sync() },
			"kill":     func(rt *rapid.T) { d.kill(rapid.IntRange(0, 3).Draw(rt, "writes")) },
			"new pods": func(*rapid.T) { d.create(); d.sync() },
		})
		d.finish(rt, limit)
	})
}

// finish has every actor do its part in turn until all pods are drained.
func (d *drained) finish(rt *rapid.T, limit int) {
	for range 4 * d.pods {
		for _, name := range slices.Sorted(maps.Keys(d.harness.pods)) {
			d.begin(name)
		}
		d.sync()
		d.step(time.Second)
		if out := d.out(); out > limit {
			rt.Fatalf("%d pods are out, x is %d and y is %d", out, d.x, d.y)
		}
		for _, name := range slices.Sorted(maps.Keys(d.harness.pods)) {
			d.unready(name)
		}
		for _, name := range slices.Sorted(maps.Keys(d.harness.pods)) {
			d.evict(name)
		}
		d.create()
		left := slices.DeleteFunc(slices.Collect(maps.Keys(d.harness.pods)), func(name string) bool { return d.fresh[name] })
		if len(left) == 0 {
			return
		}
	}
	rt.Fatalf("the drain of %d pods with x %d and y %d does not end", d.pods, d.x, d.y)
}
