package podtransitionrule

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/test/sim"
)

func anyPod(*corev1.Pod) bool { return true }

// isAllowed reports whether some operation of the pod may go on.
func isAllowed(pod *corev1.Pod) bool { return len(idsWith(pod, appsv1alpha1.OperateLabelPrefix)) > 0 }

// idsWith are the ids that carry a label, sorted.
func idsWith(pod *corev1.Pod, prefix string) []string {
	var ids []string
	for _, id := range []string{"a", "b"} {
		if _, ok := pod.Labels[prefix+"/"+id]; ok {
			ids = append(ids, id)
		}
	}
	return ids
}

// drawPod picks a pod for which the condition holds. The action is skipped when there
// is none.
func (w *simulation) drawPod(t *rapid.T, holds func(*corev1.Pod) bool) string {
	names := w.podNames(holds)
	if len(names) == 0 {
		t.Skip("no such pod")
	}
	return rapid.SampledFrom(names).Draw(t, "pod")
}

// Begin is an operation controller that requests an operation on one pod.
func (w *simulation) Begin(t *rapid.T) {
	name := w.drawPod(t, func(pod *corev1.Pod) bool { return len(idsWith(pod, appsv1alpha1.OperatingLabelPrefix)) == 0 })
	w.begin(name, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "id"), rapid.SampledFrom([]string{"upgrade", "delete"}).Draw(t, "type"))
}

// BeginAll is one that requests it for all pods at once.
func (w *simulation) BeginAll(t *rapid.T) {
	id := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "id")
	for _, name := range w.podNames(anyPod) {
		w.begin(name, id, "upgrade")
	}
}

func (w *simulation) begin(name, id, operationType string) {
	w.tick()
	w.request(name, func(pod *corev1.Pod) {
		pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+id] = ""
		pod.Labels[appsv1alpha1.OperationTypeLabelPrefix+"/"+id] = operationType
	})
}

// Finish is an operation controller that has ended an operation, or gives it up.
func (w *simulation) Finish(t *rapid.T) {
	name := w.drawPod(t, func(pod *corev1.Pod) bool { return len(idsWith(pod, appsv1alpha1.OperatingLabelPrefix)) > 0 })
	id := rapid.SampledFrom(idsWith(w.server.pods[name], appsv1alpha1.OperatingLabelPrefix)).Draw(t, "id")
	w.request(name, func(pod *corev1.Pod) { delete(pod.Labels, appsv1alpha1.OperatingLabelPrefix+"/"+id) })
}

// Cycle lets every actor make one step: traffic goes off, the operations that may go on are
// carried out, and traffic comes back where no rule is evaluated.
func (w *simulation) Cycle(t *rapid.T) {
	w.others()
	names := w.podNames(isAllowed)
	if len(names) == 0 {
		t.Skip("no operation may go on")
	}
	for _, name := range names {
		w.request(name, func(pod *corev1.Pod) {
			for _, id := range idsWith(pod, appsv1alpha1.OperateLabelPrefix) {
				delete(pod.Labels, appsv1alpha1.OperatingLabelPrefix+"/"+id)
			}
		})
	}
	w.others()
}

// Replace deletes a pod whose operation may go on.
func (w *simulation) Replace(t *rapid.T) {
	name := w.drawPod(t, isAllowed)
	w.server.deletePod(name)
	w.missing = append(w.missing, name)
}

// Recreate makes a pod again that was deleted. It does not serve yet.
func (w *simulation) Recreate(t *rapid.T) {
	if len(w.missing) == 0 {
		t.Skip("no pod is missing")
	}
	name := w.missing[0]
	w.missing = w.missing[1:]
	app, _, _ := cutName(name)
	w.server.putPod(w.newPod(app, name).Obj())
}

// Surge makes a pod beyond the pods that its workload wants, as a rollout does. It does
// not serve yet.
func (w *simulation) Surge(t *rapid.T) {
	name := rapid.SampledFrom([]string{"web-7", "web-8", "db-7", "db-8"}).Draw(t, "surge")
	app, _, _ := cutName(name)
	if app == "db" && len(w.unknown) > 0 {
		t.Skip("no workload has a desired number")
	}
	if _, there := w.server.pods[name]; there || slices.Contains(w.missing, name) {
		t.Skip("it is there already")
	}
	w.server.putPod(w.newPod(app, name).Obj())
}

func cutName(name string) (app, ordinal string, found bool) {
	i := slices.Index([]byte(name), '-')
	return name[:i], name[i+1:], true
}

// Others is every other component that writes to the pods: the kubelets and the controller
// of lifecycles.
func (w *simulation) Others(t *rapid.T) {
	if !w.others() {
		t.Skip("nothing to do")
	}
}

// others reports whether another component wrote to a pod.
func (w *simulation) others() bool {
	before := w.server.version
	for _, name := range w.podNames(anyPod) {
		w.tick()
		w.lifecycle(name)
		w.kubelet(name)
	}
	return w.server.version != before
}

func (w *simulation) lifecycle(name string) {
	pod := w.server.pods[name]
	change := lifecycle.Advance(lifecycle.NewPodFacts(pod), lifecycle.Permits{}, lifecycle.Options{}, w.now)
	if change.IsEmpty() {
		return
	}
	w.edit(name, func(pod *corev1.Pod) {
		pod.Labels = change.Apply(pod.Labels)
		if change.Gate != nil {
			sim.SetCondition(pod, appsv1alpha1.ServiceReadyGate, *change.Gate, "", w.now)
		}
	})
}

// kubelet reports the conditions as a kubelet does.
func (w *simulation) kubelet(name string) {
	pod := w.server.pods[name]
	healthy := !w.sick[pod.UID]
	facts := lifecycle.NewPodFacts(pod)
	ready := healthy && facts.Gate == lifecycle.GateTrue
	if facts.ContainersReady == healthy && facts.Ready == ready && (ready || facts.GatesOnly == healthy) {
		return
	}
	w.edit(name, func(pod *corev1.Pod) { sim.Kubelet{Healthy: healthy}.Report(pod, w.now) })
}

// Beat writes a field of a pod that no component reads.
func (w *simulation) Beat(t *rapid.T) {
	name := w.drawPod(t, anyPod)
	w.edit(name, beat)
}

func beat(pod *corev1.Pod) { pod.Status.Message += "." }

// Mark flips the label that label checks require.
func (w *simulation) Mark(t *rapid.T) {
	name := w.drawPod(t, anyPod)
	w.flip(name, "go", "yes", "no")
}

func (w *simulation) flip(name, key, one, other string) {
	w.request(name, func(pod *corev1.Pod) {
		if pod.Labels[key] == one {
			one = other
		}
		pod.Labels[key] = one
	})
}

// Move flips a label that selectors match.
func (w *simulation) Move(t *rapid.T) {
	name := w.drawPod(t, anyPod)
	w.flip(name, "tier", "gold", "iron")
}

// Leave takes a pod out from under its rules, or back.
func (w *simulation) Leave(t *rapid.T) {
	name := w.drawPod(t, anyPod)
	app, _, _ := cutName(name)
	w.flip(name, "app", app, "none")
}

// Skip lets a pod skip a rule.
func (w *simulation) Skip(t *rapid.T) {
	name := w.drawPod(t, anyPod)
	w.edit(name, func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{appsv1alpha1.SkipRulesAnnotationKey: `{"skipRules":["r0"]}`}
	})
}

// Sicken makes the containers of a pod fail, or recover.
func (w *simulation) Sicken(t *rapid.T) {
	name := w.drawPod(t, anyPod)
	uid := w.server.pods[name].UID
	w.sick[uid] = !w.sick[uid]
	w.kubelet(name)
	w.lifecycle(name)
}

// Lose deletes a pod without a permit.
func (w *simulation) Lose(t *rapid.T) {
	name := w.drawPod(t, anyPod)
	w.server.deletePod(name)
	w.missing = append(w.missing, name)
}

// Scale changes the desired number of an owner.
func (w *simulation) Scale(t *rapid.T) {
	uid := rapid.SampledFrom(slices.Sorted(maps.Keys(w.owners))).Draw(t, "owner")
	owner := w.owners[uid]
	owner.Desired = rapid.IntRange(0, 6).Draw(t, "desired")
	w.owners[uid] = owner
}

// Rule makes, edits or deletes a PodTransitionRule.
func (w *simulation) Rule(t *rapid.T) {
	name := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "object")
	if _, ok := w.server.rules[name]; ok && rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
		w.server.deleteRule(name)
		return
	}
	w.server.putRule(name, drawSpec(t, false))
}

// ReplaceRule deletes a PodTransitionRule and creates it again, as kubectl replace --force
// does.
func (w *simulation) ReplaceRule(t *rapid.T) {
	names := slices.Sorted(maps.Keys(w.server.rules))
	if len(names) == 0 {
		t.Skip("no rule is left")
	}
	name := rapid.SampledFrom(names).Draw(t, "object")
	spec := w.server.rules[name].Spec
	w.server.deleteRule(name)
	w.server.putRule(name, spec)
}

// drawSpec makes the rules of one object. Quiet ones select by what a workload gives to
// all its pods, and require nothing but availability and labels.
func drawSpec(t *rapid.T, quiet bool) appsv1alpha1.PodTransitionRuleSpec {
	selectors := []metav1.LabelSelector{
		{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"web", "db"}}}},
		{MatchLabels: map[string]string{"app": "web"}},
		{MatchLabels: map[string]string{"app": "db"}},
	}
	kinds := []string{"max", "max", "min", "both", "label"}
	if !quiet {
		selectors = append(selectors, metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}})
		kinds = append(kinds, "post label", "max of delete", "max of gold", "warn", "broken")
	}
	selector := rapid.SampledFrom(selectors).Draw(t, "selector")
	spec := appsv1alpha1.PodTransitionRuleSpec{Selector: &selector}
	for i := range rapid.IntRange(1, 2).Draw(t, "rules") {
		rule := ruleOfKind(rapid.SampledFrom(kinds).Draw(t, "kind"), drawBound(t, "max"), drawBound(t, "min"))
		rule.Name = "r" + string(rune('0'+i))
		spec.Rules = append(spec.Rules, rule)
	}
	return spec
}

func drawBound(t *rapid.T, name string) *intstr.IntOrString {
	bound := rapid.SampledFrom([]intstr.IntOrString{
		intstr.FromInt32(1), intstr.FromInt32(1), intstr.FromInt32(2), intstr.FromString("34%"), intstr.FromString("50%"),
	}).Draw(t, name)
	return &bound
}

func ruleOfKind(kind string, most, least *intstr.IntOrString) appsv1alpha1.TransitionRule {
	rule := appsv1alpha1.TransitionRule{Stage: appsv1alpha1.StagePreCheck, Enforcement: appsv1alpha1.EnforcementEnforce}
	marked := &appsv1alpha1.LabelCheck{Requires: &metav1.LabelSelector{MatchLabels: map[string]string{"go": "yes"}}}
	switch kind {
	case "min":
		rule.AvailablePolicy = &appsv1alpha1.AvailablePolicy{MinAvailableValue: least}
	case "both":
		rule.AvailablePolicy = &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: most, MinAvailableValue: least}
	case "label":
		rule.LabelCheck = marked
	case "post label":
		rule.Stage, rule.LabelCheck = appsv1alpha1.StagePostCheck, marked
	case "broken":
	default:
		rule.AvailablePolicy = &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: most}
	}
	switch kind {
	case "max of delete":
		rule.Conditions = []string{"delete"}
	case "max of gold":
		rule.Filter = &appsv1alpha1.TransitionRuleFilter{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}}
	case "warn":
		rule.Enforcement = appsv1alpha1.EnforcementWarn
	}
	return rule
}
