package explain_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/replicasetscale"
	"github.com/podops-dev/podops/pkg/view/doctor"
	"github.com/podops-dev/podops/pkg/view/explain"
	"github.com/podops-dev/podops/test/builders"
)

// call is a command line that is run in a world.
type call struct {
	world

	// about is the reason for which the command is printed: what a person edits with it.
	about explain.Reason

	command   explain.Command
	words     []string
	overwrite bool
}

// run runs a printed command as kubectl does, and reports whether it only reads.
func run(w world, about explain.Reason, command explain.Command) (reads bool, err error) {
	c := call{world: w, about: about, command: command}
	words := split(strings.ReplaceAll(command.Run, "$(date)", "today"))
	namespaces := []string{w.Namespace, w.Manager.Namespace}
	for i := 0; i < len(words); i++ {
		switch {
		case words[i] == "-n" && (i+1 >= len(words) || !slices.Contains(namespaces, words[i+1])):
			return false, fmt.Errorf("a namespace that does not exist")
		case words[i] == "-n":
			i++
		case words[i] == "--overwrite":
			c.overwrite = true
		default:
			c.words = append(c.words, words[i])
		}
	}
	if len(c.words) < 3 || c.words[0] != "kubectl" {
		return false, fmt.Errorf("no command of kubectl")
	}
	c.words = c.words[1:]
	return c.verb()
}

// split splits a command line into words as a shell does, as far as commands need it.
func split(line string) (words []string) {
	word, quote := "", rune(0)
	for _, char := range line + " " {
		switch {
		case quote == 0 && (char == '\'' || char == '"'):
			quote = char
		case char == quote:
			quote = 0
		case char == ' ' && quote == 0:
			if word != "" {
				words = append(words, word)
			}
			word = ""
		default:
			word += string(char)
		}
	}
	return words
}

func (c call) verb() (reads bool, err error) {
	switch verb := c.words[0]; verb {
	case "get", "describe":
		return true, c.exists(c.words[1], slices.Concat(c.words[2:], []string{""})[0])
	case "logs":
		return true, nil
	case "podops":
		return c.podops()
	case "label", "annotate":
		return false, c.mark(verb)
	case "edit":
		return false, c.edit()
	case "delete":
		return false, c.remove(c.words[2])
	case "patch":
		return false, c.patch()
	case "scale":
		return false, c.scale()
	case "rollout":
		return false, c.rollout()
	default:
		return false, fmt.Errorf("no interpreter of the verb %s", verb)
	}
}

// exists returns an error if an object does not exist. Objects that a Snapshot does not have count as existing.
func (c call) exists(kind, name string) error {
	found := true
	switch kind {
	case "pod":
		found = c.Pod(name) != nil
	case "ptr", "podtransitionrule":
		found = c.Rule(name) != nil
	case "service":
		found = c.Service(name) != nil
	case "poddisruptionbudget", "pdb":
		found = c.Budget(name) != nil
	case "deployment":
		found = c.Deployment(name) != nil
	case "replicaset":
		found = c.ReplicaSet(name) != nil
	case "statefulset":
		found = c.StatefulSet(name) != nil
	case "daemonset":
		found = c.DaemonSet(name) != nil
	case "pods", "podtransitionrules", "podtransitionpolicies", "node", "podtransitionpolicy", "trafficadapter", "secret", "podoperation", "namespace":
	default:
		return fmt.Errorf("no interpreter of the kind %s", kind)
	}
	if !found {
		return fmt.Errorf("%s %s does not exist", kind, name)
	}
	return nil
}

func (c call) podops() (reads bool, err error) {
	switch kind, name, _ := strings.Cut(c.words[2], "/"); c.words[1] {
	case "explain":
		return true, c.exists(kind, name)
	case "eval":
		return true, c.exists("pod", c.words[3])
	case "delete":
		return false, c.remove(c.words[3])
	case "unstick":
		return false, c.unstick(name)
	default:
		return false, fmt.Errorf("no interpreter of the verb podops %s", c.words[1])
	}
}

// mark sets and removes labels or annotations.
func (c call) mark(verb string) error {
	kind, name := c.words[1], c.words[2]
	if err := c.exists(kind, name); err != nil {
		return err
	}
	switch kind {
	case "namespace":
		c.BreakGlass, c.ClusterBreakGlass = "", "" // by explain, which only ends it
		return nil
	case "podtransitionrule":
		return c.set(&c.Rule(name).Annotations)
	}
	pod := c.Pod(name)
	if verb == "annotate" {
		return c.set(&pod.Annotations)
	}
	requested := pod.DeepCopy()
	if err := c.set(&requested.Labels); err != nil {
		return err
	}
	return admit(pod, requested)
}

// set changes labels or annotations by the arguments of the command.
func (c call) set(values *map[string]string) error {
	changed := maps.Clone(*values)
	if changed == nil {
		changed = map[string]string{}
	}
	for _, argument := range c.words[3:] {
		key, value, sets := strings.Cut(argument, "=")
		if !sets {
			delete(changed, strings.TrimSuffix(argument, "-"))
			continue
		}
		if present, ok := changed[key]; ok && present != value && !c.overwrite {
			return fmt.Errorf("%s has the value %q, and --overwrite is not set", key, present)
		}
		changed[key] = strings.NewReplacer("<type>", "restart", "<value>", "any").Replace(value)
	}
	*values = changed
	return nil
}

// admit changes labels as the API server does with the PodOps webhooks.
func admit(pod, requested *corev1.Pod) error {
	admission := lifecycle.AdmitUpdate(lifecycle.NewPodFacts(pod), lifecycle.NewPodFacts(requested), false, lifecycle.Options{}, now())
	if len(admission.Denials) > 0 {
		return fmt.Errorf("denied: %s", lifecycle.DenialText(admission.Denials))
	}
	pod.Labels = admission.Change.Apply(requested.Labels)
	return nil
}

// edit is a person who edits the rule as the purpose of the command has it.
func (c call) edit() error {
	kind, name := c.words[1], c.words[2]
	if err := c.exists(kind, name); err != nil {
		return err
	}
	if kind == "pdb" {
		c.Budget(name).Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"edited": "true"}}
		return nil
	}
	ruleset, edited, _ := strings.Cut(c.about.Rule, "/")
	if kind == "podtransitionrule" && edited == "" {
		ruleset = name
	}
	object := c.Rule(ruleset)
	if object == nil || kind == "podtransitionrule" && ruleset != name {
		return fmt.Errorf("the command edits %s %s, and the reason is of %s", kind, name, c.about.Rule)
	}
	for i := range object.Spec.Rules {
		spec := &object.Spec.Rules[i]
		if strings.Contains(c.command.Purpose, "exemptRevisions: Abandoned") {
			spec.ExemptRevisions = appsv1alpha1.ExemptAbandoned
		} else {
			spec.Disabled = spec.Disabled || edited == "" || spec.Name == edited
		}
	}
	return nil
}

// remove deletes a pod: one under PodOps begins its deletion.
func (c call) remove(name string) error {
	pod := c.Pod(name)
	switch {
	case pod == nil:
		return fmt.Errorf("pod %s does not exist", name)
	case pod.DeletionTimestamp != nil || deferreddelete.IsDeferred(pod.Labels):
		return fmt.Errorf("pod %s is deleted already", name)
	case strings.Contains(c.command.Purpose, "created again") && c.Template(c.Owner(pod)) == nil:
		return fmt.Errorf("pod %s has no workload that creates it again", name)
	case !appsv1alpha1.IsControlled(pod.Labels):
		pod.DeletionTimestamp = &metav1.Time{Time: now()}
		return nil
	}
	requested := pod.DeepCopy()
	requested.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+appsv1alpha1.PodDeleteID] = builders.Stamp(now())
	requested.Labels[appsv1alpha1.OperationTypeLabelPrefix+"/"+appsv1alpha1.PodDeleteID] = appsv1alpha1.DeleteOperationType
	return admit(pod, requested)
}

// unstick makes the repairs of kubectl podops unstick --yes.
func (c call) unstick(name string) error {
	pod := c.Pod(name)
	if pod == nil {
		return fmt.Errorf("pod %s does not exist", name)
	}
	services := make([]corev1.Service, len(c.Services))
	for i, service := range c.Services {
		services[i] = *service
	}
	plan := doctor.Unstick(doctor.Snapshot{Services: services}, pod, doctor.Options{}, now().Add(c.later))
	if len(plan.Steps) == 0 {
		return fmt.Errorf("unstick finds no repair: %s", plan.Waits)
	}
	pod.Finalizers = slices.DeleteFunc(pod.Finalizers, func(name string) bool { return slices.Contains(plan.Finalizers, name) })
	requested := pod.DeepCopy()
	for key, value := range plan.Labels {
		if delete(requested.Labels, key); value != nil {
			requested.Labels[key] = *value
		}
	}
	return admit(pod, requested)
}

// patch merges labels into the template of a workload.
func (c call) patch() error {
	kind, name := c.words[1], c.words[2]
	var patch appsv1.Deployment
	if err := json.Unmarshal([]byte(c.words[4]), &patch); err != nil || c.words[3] != "-p" {
		return fmt.Errorf("no patch: %w", err)
	}
	if err := c.exists(kind, name); err != nil {
		return err
	}
	template := map[string]func() *corev1.PodTemplateSpec{
		"deployment":  func() *corev1.PodTemplateSpec { return &c.Deployment(name).Spec.Template },
		"replicaset":  func() *corev1.PodTemplateSpec { return &c.ReplicaSet(name).Spec.Template },
		"statefulset": func() *corev1.PodTemplateSpec { return &c.StatefulSet(name).Spec.Template },
		"daemonset":   func() *corev1.PodTemplateSpec { return &c.DaemonSet(name).Spec.Template },
	}[kind]
	if template == nil {
		return fmt.Errorf("a %s has no template that can be changed", kind)
	}
	merged := maps.Clone(template().Labels)
	maps.Copy(merged, patch.Spec.Template.Labels)
	template().Labels = merged
	return nil
}

// scale scales a Deployment or a ReplicaSet, whose ReplicaSets get back first what they have.
func (c call) scale() error {
	kind, name := c.words[1], c.words[2]
	replicas, err := strconv.Atoi(strings.TrimPrefix(c.words[3], "--replicas="))
	if err := cmp.Or(err, c.exists(kind, name)); err != nil {
		return err
	}
	if kind == "replicaset" {
		if owner := metav1.GetControllerOf(c.ReplicaSet(name)); owner != nil {
			return fmt.Errorf("%s %s scales it back", owner.Kind, owner.Name)
		}
		c.ReplicaSet(name).Spec.Replicas = new(int32(replicas))
		return nil
	}
	deployment := c.Deployment(name)
	left := replicas - replicasetscale.Replicas(deployment.Spec.Replicas)
	if left <= 0 {
		return fmt.Errorf("the scale of Deployment %s was %d", name, replicas-left)
	}
	deployment.Spec.Replicas = new(int32(replicas))
	for _, set := range c.ReplicaSetsOwnedBy(deployment.UID) {
		more := min(left, max(0, int(set.Status.Replicas)-replicasetscale.Replicas(set.Spec.Replicas)))
		set.Spec.Replicas = new(int32(replicasetscale.Replicas(set.Spec.Replicas) + more))
		left -= more
	}
	return nil
}

// rollout resumes a Deployment, or rolls it back.
func (c call) rollout() error {
	deployment := c.Deployment(c.words[3])
	if deployment == nil {
		return fmt.Errorf("deployment %s does not exist", c.words[3])
	}
	if c.words[1] == "resume" {
		deployment.Spec.Paused = false
		return nil
	}
	if c.words[1] != "undo" || deployment.Spec.Paused {
		return fmt.Errorf("cannot %s a Deployment (paused: %t)", c.words[1], deployment.Spec.Paused)
	}
	sets := c.ReplicaSetsOwnedBy(deployment.UID)
	slices.SortFunc(sets, func(a, b *appsv1.ReplicaSet) int { return cmp.Compare(revisionNumber(a), revisionNumber(b)) })
	target := sets[max(0, len(sets)-2)]
	if len(c.words) > 4 {
		at := slices.IndexFunc(sets, func(set *appsv1.ReplicaSet) bool {
			return c.words[4] == fmt.Sprintf("--to-revision=%d", revisionNumber(set))
		})
		if at < 0 {
			return fmt.Errorf("no revision %s", c.words[4])
		}
		target = sets[at]
	}
	revision := strconv.Itoa(revisionNumber(sets[len(sets)-1]) + 1)
	target.Annotations[appsv1alpha1.DeploymentRevisionAnnotationKey] = revision
	deployment.Annotations[appsv1alpha1.DeploymentRevisionAnnotationKey] = revision
	target.Spec.Replicas = deployment.Spec.Replicas
	return nil
}
