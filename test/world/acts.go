package world

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/approval"
)

// verb performs an act on a workload, which is empty if the act names none.
type verb func(w *World, ctx context.Context, a Act, on Workload) error

// verbs returns what an act can be.
func verbs() map[string]verb {
	return map[string]verb{
		// the numbers and revisions of workloads
		"scale": (*World).scale, "scale-back": (*World).scaleBack, "scale-set": (*World).scaleSet, "image": (*World).image, "undo": (*World).undo,
		"pause": paused(true), "resume": paused(false), "suspend": suspended(true), "unsuspend": suspended(false),
		"hpa": (*World).level, "gitops": (*World).level,
		// the existence of workloads
		"delete": (*World).delete, "orphan": (*World).delete, "adopt": (*World).adopt,
		"untemplate": (*World).template, "template": (*World).template,
		// approvals, rules and budgets
		"approve": (*World).approve, "withdraw": (*World).withdraw, "approve-always": (*World).approveOn,
		"rule": (*World).rule, "unrule": (*World).unrule, "budget": (*World).budget, "unbudget": (*World).unbudget,
		// pods
		"delete-pod": (*World).deletePod, "evict": (*World).evictPod, "label-pod": (*World).labelPod, "unlabel-pod": (*World).labelPod,
		"release-pod": (*World).releasePod, "cost": (*World).cost, "fail": (*World).fail,
		// clients that remove many pods
		"drain": (*World).drain, "evict-some": (*World).evictSome, "evict-by-name": (*World).evictByName,
		// nodes and managers
		"cordon": (*World).cordon, "uncordon": (*World).cordon, "lose-node": (*World).loseNode, "add-node": (*World).addNode,
		"unlabel-node": (*World).nodeLabel, "label-node": (*World).nodeLabel,
		"kill": (*World).manager, "stop": (*World).manager, "start": (*World).manager, "hang": (*World).manager,
		"deny": (*World).deny,
	}
}

// perform performs an act. Errors of requests are part of the trace, since any request may be refused.
func (w *World) perform(ctx context.Context, a Act) {
	on, _ := w.schedule.workload(a.On)
	do, ok := verbs()[a.Verb]
	if !ok {
		w.laws.report(lawWorks, fmt.Sprintf("unknown act %q", a.Verb))
		return
	}
	if err := do(w, ctx, a, on); err != nil && ctx.Err() == nil {
		w.trace.note(fmt.Sprintf("%s %s: %s", a.Verb, a.On, cut(err.Error(), 160)))
	}
}

// patch sends a merge patch of a user, and reports whether it was accepted.
func (w *World) patch(ctx context.Context, user string, object client.Object, patch map[string]any) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	return w.client(user).Patch(ctx, object, client.RawPatch(types.MergePatchType, body))
}

func labelPatch(key string, value any) map[string]any {
	return map[string]any{"metadata": map[string]any{"labels": map[string]any{key: value}}}
}

func specPatch(field string, value any) map[string]any {
	return map[string]any{"spec": map[string]any{field: value}}
}

// wish changes what users want of a workload.
func (w *World) wish(name string, change func(*wishes)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known, ok := w.wishes[name]; ok {
		change(known)
	}
}

// wished returns what users want of a workload.
func (w *World) wished(name string) wishes {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known, ok := w.wishes[name]; ok {
		return *known
	}
	return wishes{}
}

// scale writes the number of replicas: the Scale, as kubectl scale does, or the object (Text "apply"), or with
// server-side apply ("ssa"), or the Scale with an "outdated" resourceVersion.
func (w *World) scale(ctx context.Context, a Act, on Workload) error {
	return w.scaleTo(ctx, person, on, a.N, a.Text)
}

func (w *World) scaleBack(ctx context.Context, a Act, on Workload) error {
	return w.scaleTo(ctx, person, on, w.wished(on.Name).before, a.Text)
}

// scaleSet scales the newest ReplicaSet of a Deployment.
func (w *World) scaleSet(ctx context.Context, a Act, on Workload) error {
	var sets appsv1.ReplicaSetList
	err := w.client(person).List(ctx, &sets, client.InNamespace(on.Namespace()), client.MatchingLabels{app: on.Name})
	if err != nil {
		return fmt.Errorf("listing ReplicaSets: %w", err)
	}
	for _, set := range sets.Items {
		if image(set.Spec.Template.Spec) == w.wished(on.Name).image {
			return w.patchScale(ctx, person, &set, specPatch("replicas", a.N))
		}
	}
	return nil
}

// patchScale patches the Scale of an object, as kubectl scale does.
func (w *World) patchScale(ctx context.Context, user string, object client.Object, patch map[string]any) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: object.GetName()}}
	return w.client(user).SubResource("scale").Patch(ctx, object, client.RawPatch(types.MergePatchType, body), client.WithSubResourceBody(scale))
}

func (w *World) scaleTo(ctx context.Context, user string, on Workload, n int, by string) error {
	var err error
	switch {
	case on.Kind == DaemonSet:
		return nil
	case on.Kind == Job:
		err = w.patch(ctx, user, object(on), specPatch("parallelism", n))
	case by == "apply":
		err = w.patch(ctx, user, object(on), specPatch("replicas", n))
	case by == serverSide:
		err = w.apply(ctx, user, on, n, "")
	case by == "outdated":
		patch := specPatch("replicas", n)
		patch["metadata"] = map[string]any{"resourceVersion": "1"}
		err = w.patchScale(ctx, user, object(on), patch)
	default:
		err = w.patchScale(ctx, user, object(on), specPatch("replicas", n))
	}
	if err == nil {
		if on.Kind != Job {
			n = w.laws.latest(on.Name).n // of two requests at once the last counts
		}
		w.noteReplicas(on.Name, n)
	}
	return err
}

func (w *World) image(ctx context.Context, a Act, on Workload) error {
	return w.setImage(ctx, on, a.Text)
}

// undo sets the image from before, and for a Deployment copies the annotations of its ReplicaSet as kubectl rollout undo
// does.
func (w *World) undo(ctx context.Context, _ Act, on Workload) error {
	previous := w.wished(on.Name).previous
	if on.Kind == Deployment {
		if err := w.copyAnnotations(ctx, on, previous); err != nil {
			return err
		}
	}
	return w.setImage(ctx, on, previous)
}

func (w *World) copyAnnotations(ctx context.Context, on Workload, previous string) error {
	var sets appsv1.ReplicaSetList
	err := w.client(person).List(ctx, &sets, client.InNamespace(on.Namespace()), client.MatchingLabels{app: on.Name})
	if err != nil {
		return fmt.Errorf("listing ReplicaSets: %w", err)
	}
	for _, set := range sets.Items {
		if image(set.Spec.Template.Spec) != previous {
			continue
		}
		annotations := map[string]any{}
		for key, value := range set.Annotations {
			if !strings.HasPrefix(key, "deployment.kubernetes.io/") {
				annotations[key] = value
			}
		}
		return w.patch(ctx, person, object(on), map[string]any{"metadata": map[string]any{"annotations": annotations}})
	}
	return nil
}

func (w *World) setImage(ctx context.Context, on Workload, to string) error {
	var err error
	switch on.Kind {
	case Fleet, Rollout:
		err = w.patch(ctx, person, object(on), specPatch("image", to))
	case Job:
		return nil
	default:
		patch, _ := json.Marshal(specPatch("template", specPatch("containers", []map[string]any{{"name": "main", "image": to}})))
		err = w.client(person).Patch(ctx, object(on), client.RawPatch(types.StrategicMergePatchType, patch))
	}
	if err == nil {
		to = w.laws.latest(on.Name).image
		w.wish(on.Name, func(known *wishes) {
			if known.image != to {
				known.previous, known.image = known.image, to
			}
		})
		w.laws.wishes(on.Name)
	}
	return err
}

func paused(on bool) verb {
	return func(w *World, ctx context.Context, _ Act, workload Workload) error {
		if workload.Kind != Deployment {
			return nil
		}
		return w.patch(ctx, person, object(workload), specPatch("paused", on))
	}
}

func suspended(on bool) verb {
	return func(w *World, ctx context.Context, _ Act, workload Workload) error {
		if workload.Kind != Job {
			return nil
		}
		w.laws.wishes(workload.Name)
		return w.patch(ctx, person, object(workload), specPatch("suspend", on))
	}
}

// isPersons reports whether a conflict is with a field of another person or client of the schedule.
func (w *World) isPersons(conflict error) bool {
	return !strings.Contains(conflict.Error(), fmt.Sprintf("%q", defaultFieldManager))
}

// defaultFieldManager is the program name, by which PodOps and the Kubernetes controllers own fields here.
const defaultFieldManager = "world.test"

// apply applies the manifest of a workload with server-side apply, without force: it creates one that was deleted.
func (w *World) apply(ctx context.Context, user string, on Workload, replicas int, to string) error {
	on.Replicas = replicas
	wanted := manifest(on)
	kinds, _, err := w.scheme.ObjectKinds(wanted)
	if err != nil {
		return fmt.Errorf("applying %s: %w", on.Name, err)
	}
	if to == "" {
		to = w.wished(on.Name).image
	}
	if template := approval.Template(wanted); template != nil {
		template.Spec.Containers[0].Image = to
	}
	if made, ok := wanted.(*unstructured.Unstructured); ok {
		made.Object["spec"].(map[string]any)["image"] = to
	}
	wanted.GetObjectKind().SetGroupVersionKind(kinds[0])
	//nolint:staticcheck // The typed way needs apply configurations of every kind.
	if err := w.client(user).Patch(ctx, wanted, client.Apply, client.FieldOwner("gitops")); err != nil {
		return err
	}
	if wanted.GetDeletionTimestamp() == nil {
		w.revive(on)
	}
	return nil
}

// revive records that a workload exists, with the template of its manifest.
func (w *World) revive(on Workload) {
	w.wish(on.Name, func(known *wishes) {
		known.recreated = known.recreated || known.gone
		known.gone, known.orphaned, known.labelled = false, false, on.isLabelled()
	})
}

// level is a client that compares and writes when numbers differ: an autoscaler every 15 s, or a GitOps controller every
// 30 s, with server-side apply if Text is "ssa".
func (w *World) level(ctx context.Context, a Act, on Workload) error {
	period, user := 15*time.Second, hpa
	if a.Verb == "gitops" {
		period, user = 30*time.Second, gitOps
	}
	for end := time.Now().Add(a.For); time.Now().Before(end); {
		if user == gitOps && a.Text == serverSide {
			if err := w.apply(ctx, user, on, a.N, ""); err != nil {
				w.trace.note("apply: " + cut(err.Error(), 160))
				if apierrors.IsConflict(err) && strings.Contains(err.Error(), "Apply failed") && !w.isPersons(err) {
					w.laws.report(lawTrue, "server-side apply: "+err.Error())
				}
			} else {
				w.noteReplicas(on.Name, w.laws.latest(on.Name).n)
			}
		} else if live, ok := w.replicas(ctx, user, on); ok && live != a.N {
			if err := w.scaleTo(ctx, user, on, a.N, map[string]string{gitOps: "apply"}[user]); err != nil {
				w.trace.note(fmt.Sprintf("%s: %s", a.Verb, cut(err.Error(), 160)))
			}
		} else if ok {
			w.noteReplicas(on.Name, w.laws.latest(on.Name).n)
		}
		if !pause(ctx, period) {
			return ctx.Err()
		}
	}
	return nil
}

// noteReplicas records the number that a workload is to have.
func (w *World) noteReplicas(name string, n int) {
	w.wish(name, func(known *wishes) {
		if known.replicas != n {
			known.before, known.replicas = known.replicas, n
		}
	})
	w.laws.wishes(name)
}

// delete deletes a workload: with its pods, in the background or (Text "foreground") in the foreground, or without them.
func (w *World) delete(ctx context.Context, a Act, on Workload) error {
	policy := metav1.DeletePropagationBackground
	switch {
	case a.Verb == "orphan":
		policy = metav1.DeletePropagationOrphan
	case a.Text == "foreground":
		policy = metav1.DeletePropagationForeground
	}
	err := w.client(person).Delete(ctx, object(on), client.PropagationPolicy(policy))
	if err != nil {
		return fmt.Errorf("deleting %s: %w", on.Name, err)
	}
	w.wish(on.Name, func(known *wishes) { known.gone, known.orphaned = true, a.Verb == "orphan" })
	w.laws.wishes(on.Name)
	if a.Verb != "orphan" || on.Kind != Deployment {
		return nil
	}
	if a.Text != "all" {
		return nil
	}
	var sets appsv1.ReplicaSetList
	if err := w.client(person).List(ctx, &sets, client.InNamespace(on.Namespace()), client.MatchingLabels{app: on.Name}); err != nil {
		return fmt.Errorf("listing ReplicaSets: %w", err)
	}
	for _, set := range sets.Items {
		if err := w.client(person).Delete(ctx, &set, client.PropagationPolicy(policy)); err != nil {
			return fmt.Errorf("deleting %s: %w", set.Name, err)
		}
	}
	return nil
}

// adopt creates a workload again, which adopts the pods that were orphaned.
func (w *World) adopt(ctx context.Context, _ Act, on Workload) error {
	known := w.wished(on.Name)
	if !known.gone {
		return nil
	}
	on.Replicas = known.replicas
	again := manifest(on)
	if template := approval.Template(again); template != nil {
		template.Spec.Containers[0].Image = known.image
	}
	if made, ok := again.(*unstructured.Unstructured); ok {
		made.Object["spec"].(map[string]any)["image"] = known.image
	}
	if err := w.client(person).Create(ctx, again); err != nil {
		return fmt.Errorf("creating %s again: %w", on.Name, err)
	}
	w.revive(on)
	w.laws.wishes(on.Name)
	return nil
}

// template puts the control label into the template of a workload, or takes it out.
func (w *World) template(ctx context.Context, a Act, on Workload) error {
	if on.Kind == Job || on.Kind == Fleet || on.Kind == Rollout {
		return nil
	}
	var value any
	if a.Verb == "template" {
		value = appsv1alpha1.ControlLabelValue
	}
	err := w.patch(ctx, person, object(on), specPatch("template", labelPatch(appsv1alpha1.ControlLabelKey, value)))
	if err == nil {
		w.wish(on.Name, func(known *wishes) { known.labelled = value != nil })
		w.laws.wishes(on.Name)
	}
	return err
}

// approve labels the first N pods of a workload, or all of them if N is 0. Text "others" leaves out waiting pods, and
// "waiting" takes only those.
func (w *World) approve(ctx context.Context, a Act, on Workload) error {
	pods, err := w.pods(ctx, on)
	if err != nil {
		return err
	}
	pods = slices.DeleteFunc(pods, func(pod corev1.Pod) bool {
		return a.Text == "others" && waits(&pod) || a.Text == "waiting" && !waits(&pod)
	})
	if a.N > 0 {
		pods = pods[:min(a.N, len(pods))]
	}
	for _, pod := range pods {
		if err := w.patch(ctx, approver, &pod, labelPatch(approved, "true")); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("approving %s: %w", pod.Name, err)
		}
	}
	return nil
}

// waits reports whether an operation on a pod has begun.
func waits(pod *corev1.Pod) bool {
	for key := range pod.Labels {
		if strings.HasPrefix(key, appsv1alpha1.OperatingLabelPrefix+"/") {
			return true
		}
	}
	return false
}

func (w *World) withdraw(ctx context.Context, _ Act, on Workload) error {
	w.mu.Lock()
	delete(w.always, on.Name)
	w.mu.Unlock()
	pods, err := w.pods(ctx, on)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		if err := w.patch(ctx, approver, &pod, labelPatch(approved, nil)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("withdrawing the approval of %s: %w", pod.Name, err)
		}
	}
	return nil
}

func (w *World) approveOn(_ context.Context, _ Act, on Workload) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.always[on.Name] = true
	return nil
}

// approveAlways approves every new pod of workloads that are approved continuously.
func (w *World) approveAlways(ctx context.Context) {
	for pause(ctx, 3*time.Second) {
		for _, on := range w.schedule.Workloads {
			w.mu.Lock()
			active := w.always[on.Name]
			w.mu.Unlock()
			if !active {
				continue
			}
			for _, pod := range w.laws.liveWith(on, func(pod *corev1.Pod) bool { return isActive(pod) && pod.Labels[approved] == "" }) {
				_ = w.patch(ctx, approver, &pod, labelPatch(approved, "true")) // tried again
			}
		}
	}
}

// rule creates or edits a rule of the kind Text.
func (w *World) rule(ctx context.Context, a Act, on Workload) error {
	object, err := rule(on, a.Text)
	if err != nil {
		return err
	}
	err = w.client(setup).Create(ctx, object)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	var live appsv1alpha1.PodTransitionRule
	if err := w.client(setup).Get(ctx, client.ObjectKeyFromObject(object), &live); err != nil {
		return fmt.Errorf("reading rule %s: %w", object.Name, err)
	}
	live.Spec = object.Spec
	return w.client(setup).Update(ctx, &live)
}

func (w *World) unrule(ctx context.Context, a Act, on Workload) error {
	object := &appsv1alpha1.PodTransitionRule{ObjectMeta: metav1.ObjectMeta{Namespace: on.Namespace(), Name: ruleName(on.Name, a.Text)}}
	return client.IgnoreNotFound(w.client(setup).Delete(ctx, object))
}

func (w *World) budget(ctx context.Context, a Act, on Workload) error {
	object := budget(on, a.N)
	err := w.client(setup).Create(ctx, object)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	return w.patch(ctx, setup, object, specPatch("minAvailable", a.N))
}

func (w *World) unbudget(ctx context.Context, _ Act, on Workload) error {
	object := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: on.Namespace(), Name: on.Name}}
	return client.IgnoreNotFound(w.client(setup).Delete(ctx, object))
}
