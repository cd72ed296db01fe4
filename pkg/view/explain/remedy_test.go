package explain_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/view/clusterstate"
	"github.com/podops-dev/podops/pkg/view/doctor"
	"github.com/podops-dev/podops/pkg/view/explain"
	"github.com/podops-dev/podops/test/builders"
)

// TestRemediesHelpAndHarmNothing applies every command that explain prints in generated namespaces: it can be run, the finding is gone
// after it, and nothing else is worse.
func TestRemediesHelpAndHarmNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := generate(t)
		w.settle()
		for _, pod := range w.Pods {
			explained := explain.Pod(w.Snapshot, pod, now())
			for _, reason := range slices.Concat(explained.Reasons, explained.Notes) {
				for _, command := range reason.Commands {
					w.try(t, pod.Name, reason, command)
				}
			}
			for _, command := range explained.LetGo {
				w.try(t, pod.Name, explain.Reason{Situation: letGo}, command)
			}
		}
		for _, deployment := range w.Deployments {
			for _, reason := range explain.OfWorkload(w.Snapshot, deployment, now()).Reasons {
				for _, command := range reason.Commands {
					w.try(t, "", reason, command)
				}
			}
		}
	})
}

// TestRemediesOfDoctorHelpAndHarmNothing does the same with the remedies of kubectl podops doctor.
func TestRemediesOfDoctorHelpAndHarmNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := generate(t)
		w.settle()
		w.later = time.Hour
		for _, finding := range w.inspect() {
			for _, line := range remedyCommands(finding.Remedy) {
				w.tryFinding(t, finding, line)
			}
		}
	})
}

// remedyCommands returns the commands of a remedy, which a sentence joins.
func remedyCommands(remedy string) (lines []string) {
	for _, between := range []string{", or ", "; why it waits: ", "; ", ", so that ", " lets ", ", and "} {
		remedy = strings.ReplaceAll(remedy, between, "\n")
	}
	for line := range strings.Lines(remedy) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "kubectl ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// tryFinding applies a remedy to a copy of the world, and compares.
func (w world) tryFinding(t *rapid.T, finding doctor.Finding, line string) {
	t.Helper()
	after := w.copy()
	_, name, _ := strings.Cut(finding.Object, "/")
	kind, _, _ := strings.Cut(finding.Object, " ")
	about := explain.Reason{}
	switch {
	case kind == "podtransitionrule":
		about.Rule = name
	case finding.Check == "gate-missing":
		about.Situation = explain.GateMissing
	case finding.Check == "lifecycle-invalid":
		about.Situation = explain.InvalidLifecycle
	}
	reads, err := run(after, about, explain.Command{Purpose: finding.Remedy, Run: line})
	if err != nil {
		t.Fatalf("%s, %s: %s: %v\n%s", finding.Check, finding.Object, line, err, w)
	}
	if reads {
		return
	}
	after.settle()
	if words := split(line); words[1] == "podops" && words[2] == "delete" {
		name = words[len(words)-1]
	}
	pod := after.Pod(name)
	if kind != "pod" {
		name = ""
	}
	problems := worse(w, after, name, about)
	remains := slices.ContainsFunc(after.inspect(), func(f doctor.Finding) bool { return f.Check == finding.Check && f.Object == finding.Object })
	isDone := pod != nil && isLeaving(pod) || strings.HasPrefix(line, "kubectl patch") // pods follow later
	if remains && !isDone && !strings.HasPrefix(line, "kubectl edit podtransitionrule") {
		problems = append(problems, "the finding remains")
	}
	for _, problem := range problems {
		t.Fatalf("%s, %s: %s: %s\nbefore:\n%s\nafter:\n%s", finding.Check, finding.Object, line, problem, w, after)
	}
}

// inspect returns what doctor finds in the world.
func (w world) inspect() []doctor.Finding { return explain.Findings(w.Snapshot, now().Add(w.later)) }

// letGo stands for the reason of commands that let a pod go although rules withhold it.
const letGo explain.Situation = "LetGo"

// try applies a command to a copy of the world, and compares.
func (w world) try(t *rapid.T, pod string, about explain.Reason, command explain.Command) {
	t.Helper()
	after := w.copy()
	reads, err := run(after, about, command)
	if err != nil {
		t.Fatalf("pod %s, %s: %s (%s): %v\n%s", pod, about.Situation, command.Run, command.Purpose, err, w)
	}
	if reads {
		return
	}
	after.settle()
	if words := split(command.Run); words[1] == "podops" && words[2] == "delete" {
		pod = words[4] // of a StatefulSet that goes first
	}
	for _, problem := range slices.Concat(remains(w, after, pod, about), worse(w, after, pod, about)) {
		t.Fatalf("pod %s, %s: %s (%s): %s\nbefore:\n%s\nafter:\n%s", pod, about.Situation, command.Run, command.Purpose, problem, w, after)
	}
}

// remains returns what a command should have ended.
func remains(before, after world, name string, about explain.Reason) []string {
	pod := after.Pod(name)
	switch {
	case name == "" || about.Situation == explain.NotControlled || about.Situation == explain.GateMissing && !isLeaving(pod):
		return nil // a template was changed: pods follow later
	case about.Situation == letGo:
		if slices.Equal(waitingIDs(before.Pod(name)), waitingIDs(pod)) {
			return []string{"the pod waits as before"}
		}
		return nil
	case isLeaving(pod):
		return nil
	}
	explained := explain.Pod(after.Snapshot, pod, now())
	for _, reason := range slices.Concat(explained.Reasons, explained.Notes) {
		if reason.Situation == about.Situation && reason.Rule == about.Rule {
			return []string{"the finding remains: " + reason.Message}
		}
	}
	return nil
}

// isLeaving reports whether a pod is being deleted.
func isLeaving(pod *corev1.Pod) bool {
	_, begun := pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+appsv1alpha1.PodDeleteID]
	return pod.DeletionTimestamp != nil || begun
}

// waitingIDs returns the ids of a pod that wait for rules.
func waitingIDs(pod *corev1.Pod) (ids []string) {
	for _, waiting := range lifecycle.WaitingIDs(lifecycle.NewPodFacts(pod)) {
		ids = append(ids, waiting.ID)
	}
	slices.Sort(ids)
	return ids
}

// worse returns what is worse than before: a selector that a pod left or joined, a pod without a request that lost its traffic or has a
// new reason, and a withdrawn revision that gets pods again. An edited rule may let go all pods that wait for it.
func worse(before, after world, name string, about explain.Reason) (problems []string) {
	for _, pod := range before.Pods {
		now := after.Pod(pod.Name)
		for of, selector := range before.selectors() {
			if matches(selector, pod.Labels) != matches(selector, now.Labels) && (pod.Name != name || about.Situation != explain.NotControlled) {
				problems = append(problems, fmt.Sprintf("%s does not select %s as before", of, pod.Name))
			}
		}
		for of, requires := range after.labelChecks(pod) {
			if matches(requires, pod.Labels) && !matches(requires, now.Labels) && about.Situation == explain.LabelMismatch {
				problems = append(problems, fmt.Sprintf("%s breaks %s", pod.Name, of))
			}
		}
		for _, skipped := range podstate.SkipRules(pod.Annotations) {
			if about.Situation != explain.SkipsRules && !slices.Contains(podstate.SkipRules(now.Annotations), skipped) {
				problems = append(problems, pod.Name+" does not skip rule "+skipped+" any more")
			}
		}
		if len(waitingIDs(pod)) > 0 || pod.Name == name && (isLeaving(now) || about.Situation == explain.InvalidLifecycle) {
			continue
		}
		if podstate.Available(pod) && !podstate.Available(now) {
			problems = append(problems, pod.Name+" lost its traffic, and nothing was requested of it")
		}
		known := situations(before, pod)
		for situation := range situations(after, now) {
			if pod.Name != name && !known[situation] {
				problems = append(problems, fmt.Sprintf("%s has a new reason: %s", pod.Name, situation))
			}
		}
	}
	for _, set := range before.ReplicaSets {
		if got := *after.ReplicaSet(set.Name).Spec.Replicas; before.bad[set.Name] && got > *set.Spec.Replicas {
			problems = append(problems, fmt.Sprintf("the withdrawn revision of %s gets %d pods", set.Name, got))
		}
	}
	slices.Sort(problems)
	return problems
}

func situations(w world, pod *corev1.Pod) map[explain.Situation]bool {
	found := map[explain.Situation]bool{}
	for _, reason := range explain.Pod(w.Snapshot, pod, now()).Reasons {
		found[reason.Situation] = true
	}
	return found
}

// generate draws a namespace.
func generate(t *rapid.T) world {
	w := world{
		Snapshot: &clusterstate.Snapshot{
			Namespace: "default",
			Manager:   clusterstate.Manager{Namespace: "podops-system", Lease: true, Holder: "m", Renewed: now(), Duration: time.Hour},
		},
		planted: map[string]rule.Code{}, bad: map[string]bool{},
	}
	if rapid.IntRange(0, 9).Draw(t, "break-glass") == 0 {
		w.BreakGlass = "an incident"
	}
	w.deployment(t)
	w.statefulSet(t)
	for i, owner := range []*metav1.OwnerReference{nil, {APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "agent", Controller: new(true)},
		{APIVersion: "example.com/v1", Kind: "Fleet", Name: "fleet", UID: "fleet", Controller: new(true)}} {
		if rapid.Bool().Draw(t, fmt.Sprintf("other %d", i)) {
			w.Pods = append(w.Pods, pod(t, fmt.Sprintf("other-%d", i), owner, map[string]string{"app": "other"}))
		}
	}
	if w.Pod("other-1") != nil {
		set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent", UID: "agent"}}
		set.Spec.Selector, set.Spec.Template = selecting("app", "other"), template(t, "other", "agent")
		set.Spec.UpdateStrategy.Type = rapid.SampledFrom([]appsv1.DaemonSetUpdateStrategyType{"RollingUpdate", "OnDelete"}).Draw(t, "strategy of agent")
		w.DaemonSets = append(w.DaemonSets, set)
	}
	w.rules(t)
	if rapid.Bool().Draw(t, "budget") {
		w.Budgets = append(w.Budgets, newBudget("web", map[string]string{"app": "web"}, int32(rapid.IntRange(0, 3).Draw(t, "minAvailable"))))
	}
	if len(w.Budgets) > 0 && rapid.Bool().Draw(t, "another budget") {
		w.Budgets = append(w.Budgets, newBudget("web-again", map[string]string{"app": "web"}, 0))
	}
	if rapid.Bool().Draw(t, "service") {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
		service.Spec.Selector = map[string]string{"app": "web"}
		if rapid.Bool().Draw(t, "service by track") {
			service.Spec.Selector["track"] = rapid.SampledFrom([]string{"stable", "canary"}).Draw(t, "track of the service")
		}
		w.Services = append(w.Services, service)
	}
	w.Pods = sorted(w.Pods)
	return w
}

func selecting(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

// template draws a pod template with or without the control label.
func template(t *rapid.T, app, name string) (drawn corev1.PodTemplateSpec) {
	drawn.Labels = map[string]string{"app": app}
	if rapid.IntRange(0, 3).Draw(t, "template of "+name) > 0 {
		drawn.Labels[appsv1alpha1.ControlLabelKey] = appsv1alpha1.ControlLabelValue
	}
	return drawn
}

// deployment draws a Deployment with as many as three ReplicaSets, one of which may have been withdrawn, or a ReplicaSet alone.
func (w world) deployment(t *rapid.T) {
	alone := rapid.IntRange(0, 5).Draw(t, "alone") == 0
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web", Annotations: map[string]string{}}}
	d.Spec.Replicas = new(int32(rapid.IntRange(0, 3).Draw(t, "replicas")))
	d.Spec.Selector, d.Spec.Template = selecting("app", "web"), template(t, "web", "web")
	d.Spec.Paused = rapid.IntRange(0, 2).Draw(t, "paused") == 0
	d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{
		MaxSurge: new(intstr.FromInt32(1)), MaxUnavailable: new(intstr.FromInt32(int32(rapid.IntRange(0, 1).Draw(t, "maxUnavailable")))),
	}}
	if rapid.IntRange(0, 4).Draw(t, "recreate") == 0 {
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	}
	count := 1
	if !alone {
		count = rapid.IntRange(1, 3).Draw(t, "revisions")
		w.Deployments = append(w.Deployments, d)
	}
	// A rollback gives the ReplicaSet of an earlier revision the highest number.
	newest := rapid.IntRange(0, count-1).Draw(t, "newest")
	for i := range count {
		name := fmt.Sprintf("web-r%d", i)
		set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(builders.Epoch.Add(time.Duration(i-10) * time.Hour)),
			Annotations: map[string]string{appsv1alpha1.DeploymentRevisionAnnotationKey: fmt.Sprint(i + 1)},
		}}
		if i == newest {
			set.Annotations[appsv1alpha1.DeploymentRevisionAnnotationKey] = "9"
			d.Annotations[appsv1alpha1.DeploymentRevisionAnnotationKey] = "9"
		}
		if !alone {
			set.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "web", Controller: new(true)}}
		}
		w.bad[name] = i > newest
		set.Spec.Template = *d.Spec.Template.DeepCopy()
		set.Spec.Template.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = name
		set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web", appsv1.DefaultDeploymentUniqueLabelKey: name}}
		set.Spec.Replicas = new(int32(rapid.IntRange(0, 2).Draw(t, "replicas of "+name)))
		owner := &metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, UID: set.UID, Controller: new(true)}
		for j := range rapid.IntRange(int(*set.Spec.Replicas), 3).Draw(t, "pods of "+name) {
			w.Pods = append(w.Pods, pod(t, fmt.Sprintf("%s-%d", name, j), owner, map[string]string{"app": "web", appsv1.DefaultDeploymentUniqueLabelKey: name}))
			set.Status.Replicas++
		}
		set.Status.AvailableReplicas = set.Status.Replicas
		w.ReplicaSets = append(w.ReplicaSets, set)
	}
}

func (w world) statefulSet(t *rapid.T) {
	if rapid.Bool().Draw(t, "no StatefulSet") {
		return
	}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db", UID: "db"}}
	set.Spec.Replicas, set.Spec.Selector, set.Spec.Template = new(int32(2)), selecting("app", "db"), template(t, "db", "db")
	set.Spec.UpdateStrategy.Type = rapid.SampledFrom([]appsv1.StatefulSetUpdateStrategyType{"RollingUpdate", "OnDelete"}).Draw(t, "strategy of db")
	set.Status.CurrentRevision, set.Status.UpdateRevision = "db-1", rapid.SampledFrom([]string{"db-1", "db-2"}).Draw(t, "revision of db")
	owner := &metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "db", Controller: new(true)}
	for i := range 2 {
		w.Pods = append(w.Pods, pod(t, fmt.Sprintf("db-%d", i), owner, map[string]string{"app": "db", appsv1.ControllerRevisionHashLabelKey: "db-1"}))
	}
	w.StatefulSets = append(w.StatefulSets, set)
}

// pod draws a pod in some state of its lifecycle.
func pod(t *rapid.T, name string, owner *metav1.OwnerReference, marks map[string]string) *corev1.Pod {
	b := builders.MakePod(name).UID(types.UID(name)).Node("node")
	const id, kind = "a", "upgrade"
	finalizer := appsv1alpha1.ProtectionFinalizerPrefix + "/web"
	switch state := rapid.IntRange(0, 15).Draw(t, "state of "+name); state {
	case 0:
		b = b.Available().Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, builders.Epoch)
	case 1:
		b = b.Available().Waiting(id, kind, builders.Epoch)
	case 2:
		b = b.Allowed(id, kind)
	case 3:
		b = b.Available().Label(appsv1alpha1.OperatingLabelPrefix+"/"+id, "1")
	case 4:
		b = b.Available().Finalizer(finalizer).Preparing(id, kind)
	case 5:
		b = b.StayOffline()
	case 6:
		b = b.Available().Annotation(appsv1alpha1.AvailableConditionsAnnotationKey, "{")
	case 7:
		b = b.Available().Gateless()
	case 8:
		b = b.Available().Uncontrolled()
	case 9:
		b = b.Available().Finalizer(finalizer).Terminating(builders.Epoch)
	case 10:
		b = b.Unready(builders.Epoch)
	case 11:
		b = b.Finished(id, kind, builders.Epoch)
	case 12:
		b = b.Available().Waiting(id, kind, builders.Epoch).Annotation(appsv1alpha1.SkipRulesAnnotationKey, `{"skipRules":["other"]}`)
	case 13:
		b = b.Available().Waiting(id, kind, builders.Epoch).Annotation(appsv1alpha1.BreakGlassAnnotationKey, "an incident")
	default:
		b = b.Available()
	}
	for _, key := range slices.Sorted(maps.Keys(marks)) {
		b = b.Label(key, marks[key])
	}
	if track := rapid.SampledFrom([]string{"", "stable", "canary"}).Draw(t, "track of "+name); track != "" {
		b = b.Label("track", track)
	}
	if rapid.IntRange(0, 3).Draw(t, "approved "+name) == 0 {
		b = b.Label("approved", "true")
	}
	if owner != nil {
		b = b.OwnedBy(*owner)
	}
	return b.Obj()
}

// rules draws PodTransitionRules.
func (w world) rules(t *rapid.T) {
	for i, app := range []string{"web", "db", "other"} {
		if rapid.IntRange(0, 3).Draw(t, "rules of "+app) == 0 {
			continue
		}
		object := &appsv1alpha1.PodTransitionRule{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app}}
		object.Spec.Selector = selecting("app", app)
		for j := range rapid.IntRange(1, 2).Draw(t, "count of rules of "+app) {
			name := fmt.Sprintf("r%d%d", i, j)
			object.Spec.Rules = append(object.Spec.Rules, w.rule(t, name))
		}
		w.Rules = append(w.Rules, object)
	}
	w.Rules = sorted(w.Rules)
}

func (w world) rule(t *rapid.T, name string) appsv1alpha1.TransitionRule {
	spec := appsv1alpha1.TransitionRule{Name: name, Stage: rapid.SampledFrom([]appsv1alpha1.TransitionStage{"", appsv1alpha1.StagePostCheck}).Draw(t, "stage of "+name)}
	if rapid.IntRange(0, 3).Draw(t, "filter of "+name) == 0 {
		spec.Filter = &appsv1alpha1.TransitionRuleFilter{LabelSelector: selecting("track", "stable")}
	}
	requirement := func(key string, operator metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: values}
	}
	requires := []*metav1.LabelSelector{
		selecting("approved", "true"), selecting("track", "canary"), selecting("app", "another"), selecting(appsv1alpha1.ControlLabelKey, "false"),
		{MatchExpressions: []metav1.LabelSelectorRequirement{requirement("approved", "In", "yes", "true")}},
		{MatchExpressions: []metav1.LabelSelectorRequirement{requirement("track", "DoesNotExist")}},
		{MatchExpressions: []metav1.LabelSelectorRequirement{requirement("approved", "Exists"), requirement("approved", "NotIn", "true")}},
		{MatchExpressions: []metav1.LabelSelectorRequirement{requirement(appsv1.DefaultDeploymentUniqueLabelKey, "DoesNotExist")}},
	}
	codes := []rule.Code{rule.CodeDenied, rule.CodePolicyTooExpensive, rule.CodePolicyNotFound, rule.CodeWebhookFailed, rule.CodeCompileFailed}
	switch kind := rapid.IntRange(0, len(requires)+len(codes)+1).Draw(t, "kind of "+name); {
	case kind < len(requires):
		spec.LabelCheck = &appsv1alpha1.LabelCheck{Requires: requires[kind]}
	case kind < len(requires)+len(codes):
		spec.Rego = &appsv1alpha1.RegoRule{Module: "package podops"}
		w.planted[name] = codes[kind-len(requires)]
	default:
		spec.AvailablePolicy = &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: new(intstr.FromInt32(int32(rapid.IntRange(0, 2).Draw(t, "maximum of "+name))))}
	}
	return spec
}

// String prints the pods and sets of a world.
func (w world) String() string {
	var text strings.Builder
	for _, set := range w.ReplicaSets {
		fmt.Fprintf(&text, "  ReplicaSet %s: revision %s, replicas %d, pods %d\n", set.Name, set.Annotations[appsv1alpha1.DeploymentRevisionAnnotationKey],
			*set.Spec.Replicas, set.Status.Replicas)
	}
	for _, d := range w.Deployments {
		fmt.Fprintf(&text, "  Deployment %s: replicas %d, paused %t, %s\n", d.Name, *d.Spec.Replicas, d.Spec.Paused, d.Spec.Strategy.Type)
	}
	for _, pod := range w.Pods {
		fmt.Fprintf(&text, "  %s: %s, labels %v, annotations %v, finalizers %v\n", pod.Name, w.State(pod).Phase, pod.Labels, pod.Annotations, pod.Finalizers)
	}
	for _, object := range w.Rules {
		fmt.Fprintf(&text, "  rule %s: %+v blocks %+v\n", object.Name, object.Spec.Rules, object.Status.Blocked)
	}
	return text.String()
}
