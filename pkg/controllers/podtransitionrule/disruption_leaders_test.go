package podtransitionrule

import (
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/test/sim"
)

// TestNoPermitOvershootsADisruptionBudget lets replicas with views of any age act at once, loses, delays and
// repeats their requests, and kills them at any write, while the disruption controller is late. In every schedule a
// permit of a Ready pod is only ever accepted while as many others stay healthy as each PodDisruptionBudget requires,
// counted on the stored objects; and in the end no pod waits that might pass.
func TestNoPermitOvershootsADisruptionBudget(t *testing.T) {
	e := newTestEngine(t)
	met := &seen{metrics: newMetrics(t)}
	rapid.Check(t, func(t *rapid.T) {
		w := drawDisruptions(t, e, met)
		defer w.close()
		actions := w.quietActions()
		delete(actions, "replace rule")
		maps.Copy(actions, map[string]func(*rapid.T){
			"watch budgets": w.WatchBudgets, "count": w.Count, "count again": w.Count, "begin before": w.BeginBefore, "begin before again": w.BeginBefore,
		})
		t.Repeat(actions)
		w.settle(t)
	})
	t.Logf("%+v", *met)
	if met.simulations < 100 || t.Failed() {
		return
	}
	for what, count := range map[string]int{
		"permit of a pod of a PodDisruptionBudget": met.disruptions, "conflict over its record": met.contested,
		"view that did not reach": met.stale, "late write that was accepted": met.late, "process that was killed": met.killed,
	} {
		if count == 0 {
			t.Errorf("no schedule came across a %s", what)
		}
	}
}

// drawDisruptions is a simulation of two workloads whose pods all serve, under one or two PodDisruptionBudgets and
// perhaps a rule, and of two or three replicas of the manager.
func drawDisruptions(t *rapid.T, e *opa.Engine, met *seen) *simulation {
	w := newSimulation(t, e, met, true)
	w.batchInterval = rapid.SampledFrom([]time.Duration{0, statusInterval}).Draw(t, "batch interval")
	w.addOwner("web", rapid.IntRange(2, 5).Draw(t, "web"))
	w.addOwner("db", rapid.IntRange(1, 3).Draw(t, "db"))
	if rapid.IntRange(0, 2).Draw(t, "rule") == 0 {
		w.server.putRule("x", drawSpec(t, true))
		w.born = len(w.server.ruleHistory)
	}
	for _, name := range []string{"one", "two"}[:rapid.IntRange(1, 2).Draw(t, "budgets")] {
		apps := rapid.SampledFrom([][]string{{"web"}, {"web", "db"}}).Draw(t, "selector")
		w.addBudget(name, rapid.Int32Range(1, 2).Draw(t, "max unavailable"), apps...)
	}
	if rapid.Bool().Draw(t, "all begin") {
		w.BeginAll(t)
	}
	for range rapid.IntRange(2, 3).Draw(t, "replicas") {
		w.replicas = append(w.replicas, newReplica(w, len(w.server.podHistory), len(w.server.ruleHistory)))
	}
	return w
}

// addBudget makes a PodDisruptionBudget for workloads, whose pods the disruption controller has counted.
func (w *simulation) addBudget(name string, maxUnavailable int32, apps ...string) {
	bound := intstr.FromInt32(maxUnavailable)
	w.server.putBudget(&policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: simNamespace, Name: name, UID: w.server.newUID(name), Generation: 1},
		Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &bound, Selector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: apps}},
		}},
	})
	w.countDisruptions()
}

// countDisruptions is the disruption controller. It reports whether it has written a status.
func (w *simulation) countDisruptions() (wrote bool) {
	for _, name := range slices.Sorted(maps.Keys(w.server.budgets)) {
		budget := w.server.budgets[name].DeepCopy()
		selector := mustSelector(budget.Spec.Selector)
		status := policyv1.PodDisruptionBudgetStatus{ObservedGeneration: budget.Generation}
		for _, owner := range w.owners {
			if selector.Matches(labels.Set(owner.TemplateLabels)) {
				status.ExpectedPods += int32(owner.Desired)
			}
		}
		for _, pod := range w.server.pods {
			if isThere(pod) && selector.Matches(labels.Set(pod.Labels)) && sim.IsTrue(pod, corev1.PodReady) {
				status.CurrentHealthy++
			}
		}
		status.DesiredHealthy = max(0, status.ExpectedPods-budget.Spec.MaxUnavailable.IntVal)
		status.DisruptionsAllowed = max(0, status.CurrentHealthy-status.DesiredHealthy)
		if !apiequality.Semantic.DeepEqual(budget.Status, status) {
			budget.Status, wrote = status, true
			w.server.putBudget(budget)
		}
	}
	return wrote
}

// BeginBefore is an operation controller whose request was admitted by a replica whose clock is behind: it comes before
// requests that other replicas have seen already.
func (w *simulation) BeginBefore(t *rapid.T) {
	name := w.drawPod(t, func(pod *corev1.Pod) bool { return len(idsWith(pod, appsv1alpha1.OperatingLabelPrefix)) == 0 })
	w.now = w.now.Add(-time.Minute)
	w.begin(name, "a", "upgrade")
	w.now = w.now.Add(time.Minute)
}

// Count lets the disruption controller act.
func (w *simulation) Count(*rapid.T) { w.countDisruptions() }

// WatchBudgets delivers some events of PodDisruptionBudgets to one replica.
func (w *simulation) WatchBudgets(t *rapid.T) {
	r := w.replicas[w.drawReplica(t)]
	r.watchBudgets(drawEvents(t, len(w.server.budgetHistory)-r.budgets))
}

// deliverOldCounts lets every replica see a count of the disruption controller before a difference to the pods has
// lasted for evaluation.SettledFor: then it would count as pods without the control label.
func (w *simulation) deliverOldCounts() {
	if w.now.Sub(w.counted) < evaluation.SettledFor/2 {
		return
	}
	w.counted = w.now
	w.countDisruptions()
	for _, r := range w.replicas {
		r.watchBudgets(len(w.server.budgetHistory) - r.budgets)
	}
}

// disrupts returns the name of a PodDisruptionBudget that selects a pod and has fewer healthy pods than it requires, and a
// number more; empty without such a PodDisruptionBudget. A pod whose gate is closed is no longer healthy.
func (w *simulation) disrupts(pod *corev1.Pod, more int32) string {
	for name, budget := range w.server.budgets {
		selector := mustSelector(budget.Spec.Selector)
		if !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		healthy := int32(0)
		for _, other := range w.server.pods {
			if isThere(other) && selector.Matches(labels.Set(other.Labels)) && sim.IsTrue(other, corev1.PodReady) &&
				lifecycle.NewPodFacts(other).Gate != lifecycle.GateFalse {
				healthy++
			}
		}
		if healthy < budget.Status.DesiredHealthy+more {
			return name
		}
	}
	return ""
}

// checkDisruptions is the invariant: after a permit of a Ready pod, enough pods are healthy. Pods become unready through
// permits only.
func (w *simulation) checkDisruptions(before *corev1.Pod) {
	w.t.Helper()
	if len(w.server.budgets) == 0 {
		return
	}
	w.seen.disruptions++
	if name := w.disrupts(before, 0); name != "" {
		w.t.Fatalf("the permit of pod %s leaves fewer healthy pods than PodDisruptionBudget %s requires", before.Name, name)
	}
}
