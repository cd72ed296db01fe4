package world

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/world/node"
)

const (
	// settles is the time in which everything must have settled once everything is approved and quiet. A controller of
	// Kubernetes may back off for 16 min 40 s.
	settles = 40 * time.Minute

	// afterwards is the time in which a scale-in, a scale-out or a rollout must complete: in the last step a controller may back off.
	afterwards = 45 * time.Minute

	// last is the image of the rollout after the end.
	last = "v-last"
)

// end approves everything, ends all trouble, and checks that everything settles; and then that every workload scales in,
// out, and rolls.
func (w *World) end(ctx context.Context) error {
	w.trace.note("the end: everything is approved and quiet")
	if err := w.calm(ctx); err != nil {
		return err
	}
	w.laws.act()
	if !w.awaitSettled(ctx, settles, "") {
		return ctx.Err()
	}
	if !pause(ctx, 2*quiet+time.Minute) {
		return ctx.Err()
	}
	if w.schedule.Short {
		return nil
	}
	for _, step := range []struct {
		name string
		do   func(context.Context, Workload) error
	}{
		// The rollout comes first: a scale-in mends what would stop it.
		{"rollout", func(ctx context.Context, on Workload) error { return w.setImage(ctx, on, last) }},
		{"scale-in", func(ctx context.Context, on Workload) error {
			return w.scaleTo(ctx, person, on, max(1, w.wished(on.Name).replicas-1), "")
		}},
		{"scale-out", func(ctx context.Context, on Workload) error {
			return w.scaleTo(ctx, person, on, w.wished(on.Name).replicas+1, "")
		}},
	} {
		w.trace.note("and then: " + step.name)
		for _, on := range w.schedule.Workloads {
			if w.wished(on.Name).gone || on.Kind == Job {
				continue
			}
			if err := step.do(ctx, on); err != nil {
				w.laws.report(lawAndThen, fmt.Sprintf("%s of %s: %v", step.name, on.Name, err))
				return nil
			}
		}
		if !w.awaitSettled(ctx, afterwards, step.name) {
			return ctx.Err()
		}
	}
	return nil
}

// calm ends all trouble and approves everything.
func (w *World) calm(ctx context.Context) error {
	w.managers.chain.Quiet()
	w.mu.Lock()
	w.late = map[string]lateness{}
	for _, on := range w.schedule.Workloads {
		w.always[on.Name] = true
	}
	w.mu.Unlock()
	if err := w.managers.start(ctx); err != nil {
		return err
	}
	for i := range max(1, w.schedule.Nodes) {
		if err := w.restore(ctx, w.node(i)); err != nil {
			return err
		}
		if err := w.unschedulable(ctx, w.node(i), false); err != nil {
			return fmt.Errorf("uncordoning %s: %w", w.node(i), err)
		}
	}
	for _, on := range w.schedule.Workloads {
		wish := w.wished(on.Name)
		if wish.gone {
			continue
		}
		var err error
		switch on.Kind {
		case Deployment:
			err = w.patch(ctx, person, object(on), specPatch("paused", false))
		case Job:
			w.laws.wishes(on.Name)
			err = w.patch(ctx, person, object(on), specPatch("suspend", false))
		default: // nothing to resume
		}
		if err == nil && wish.image == node.Broken {
			err = w.setImage(ctx, on, "v-mended")
		}
		if err != nil {
			w.trace.note(fmt.Sprintf("calming %s: %v", on.Name, err))
		}
	}
	if !pause(ctx, 10*time.Second) { // a controller that has not seen the image yet makes another pod that never starts
		return ctx.Err()
	}
	w.mendAll(ctx)
	return nil
}

// mendAll mends every workload that was not deleted.
func (w *World) mendAll(ctx context.Context) {
	for _, on := range w.schedule.Workloads {
		mend := w.mend
		if w.wished(on.Name).gone { // its orphans may be fewer than its budget keeps
			mend = func(ctx context.Context, on Workload) error { return w.unbudget(ctx, Act{}, on) }
		}
		if err := mend(ctx, on); err != nil {
			w.trace.note(fmt.Sprintf("mending %s: %v", on.Name, err))
		}
	}
}

// mend ends what can never end by itself: a budget that permits no disruption once the workload is scaled in by one, a pod that never
// starts, which the controllers of StatefulSets and ReplicaSets do not replace, and a released pod with the name of the next.
func (w *World) mend(ctx context.Context, on Workload) error {
	most := w.wished(on.Name).replicas - 1
	switch on.Kind {
	case DaemonSet, Job:
		most = 1
	case Group:
		most *= 1 + workersPerLeader
	default: // a pod is one
	}
	var budget policyv1.PodDisruptionBudget
	err := w.client(setup).Get(ctx, client.ObjectKey{Namespace: on.Namespace(), Name: on.Name}, &budget)
	if err == nil && budget.Spec.MinAvailable.IntValue() >= most {
		err = w.unbudget(ctx, Act{}, on)
	}
	if err = client.IgnoreNotFound(err); err != nil || on.Kind != StatefulSet && on.Kind != Group && on.Kind != ReplicaSet {
		return err
	}
	pods := w.laws.live(on)
	on.Name = released(on)
	blocking := w.laws.live(on)
	for i := range blocking {
		err = errors.Join(err, w.patch(ctx, person, &blocking[i], labelPatch(appsv1alpha1.ControlLabelKey, nil))) // no rule is for it any more
	}
	for _, pod := range pods {
		if isActive(&pod) && pod.Spec.Containers[0].Image == node.Broken {
			blocking = append(blocking, pod)
		}
	}
	for i := range blocking {
		err = errors.Join(err, w.client(person).Delete(ctx, &blocking[i], client.GracePeriodSeconds(0)))
	}
	return err
}

// awaitSettled waits until everything has settled for a time, and reports whether it did: else laws are broken. The
// step after the end is empty at the end itself.
func (w *World) awaitSettled(ctx context.Context, within time.Duration, step string) bool {
	const lasting = 3 // rounds
	calm := 0
	for deadline := time.Now().Add(within); time.Now().Before(deadline); {
		if !pause(ctx, 10*time.Second) {
			return false
		}
		if len(w.laws.unsettled()) > 0 {
			calm = 0
			continue
		}
		if calm++; calm == lasting {
			return true
		}
	}
	for _, problem := range w.laws.unsettled() {
		if step != "" {
			w.laws.report(lawAndThen, fmt.Sprintf("the %s has not ended after %s: %s: %s", step, within, problem.Law, problem.Text))
			continue
		}
		w.laws.report(problem.Law, fmt.Sprintf("after %s %s", within, problem.Text))
	}
	return false
}

// neverStarts reports whether a pod with a broken image stays: it was released, its owner was deleted without it, or is a new DaemonSet,
// which counts its template generations from 1 again and takes an older pod with the same number for its own.
func (l *laws) neverStarts(pod *corev1.Pod) bool {
	on, known := l.world.schedule.workload(pod.Labels[app])
	wish := l.world.wished(on.Name)
	controller := metav1.GetControllerOf(pod)
	return !known || wish.orphaned || wish.recreated && (controller == nil || controller.Kind == string(DaemonSet))
}

// unsettled returns the laws of the end that do not hold now.
func (l *laws) unsettled() []Violation {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []Violation
	for _, on := range l.world.schedule.Workloads {
		if text := l.unsettledOwner(on); text != "" {
			found = append(found, Violation{Law: lawOwners, Text: text})
		}
	}
	for _, object := range l.mirror["pods"] {
		pod := object.(*corev1.Pod)
		switch {
		case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
			if pod.DeletionTimestamp != nil {
				found = append(found, Violation{Law: lawServes, Text: pod.Name + " has ended, and is still there"})
			}
		case pod.DeletionTimestamp != nil:
			found = append(found, Violation{Law: lawServes, Text: pod.Name + " is terminating"})
		case image(pod.Spec) == node.Broken && l.neverStarts(pod):
		case !isTrue(pod, corev1.PodReady):
			found = append(found, Violation{Law: lawServes, Text: fmt.Sprintf("%s is not Ready: gate %t, containers %t, labels %s",
				pod.Name, isTrue(pod, appsv1alpha1.ServiceReadyGate), isTrue(pod, corev1.ContainersReady), lifecycleKeys(pod.Labels))})
		}
	}
	for _, resource := range []string{"pods", "replicasets", "deployments", "statefulsets"} {
		for _, object := range l.mirror[resource] {
			if text := remains(object); text != "" {
				found = append(found, Violation{Law: lawRemains, Text: text})
			}
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].String() < found[j].String() })
	return found
}

// followsReleased reports whether the leader of a worker was released from its group, and stays with its workers.
func (l *laws) followsReleased(pod *corev1.Pod) bool {
	controller := metav1.GetControllerOfNoCopy(pod)
	if controller == nil {
		return false
	}
	leader, ok := l.mirror.get("pods", pod.Namespace, controller.Name).(*corev1.Pod)
	return ok && leader.Labels[app] != pod.Labels[app]
}

// unsettledOwner returns what a workload lacks; empty if it has what it wants.
func (l *laws) unsettledOwner(on Workload) string {
	wish := l.world.wished(on.Name)
	pods := l.mirror.active(func(pod *corev1.Pod) bool {
		// Pods of an old revision that were orphaned have no owner any more: a Deployment that comes back makes the ReplicaSet of its own.
		return pod.Labels[app] == on.Name && pod.Namespace == on.Namespace() && !(wish.recreated && metav1.GetControllerOfNoCopy(pod) == nil)
	})
	if wish.gone {
		left := countFunc(pods, func(pod *corev1.Pod) bool { return !l.followsReleased(pod) })
		if !wish.orphaned && left > 0 {
			return fmt.Sprintf("%s was deleted, and has %d pods", on.Name, left)
		}
		return ""
	}
	want := l.wants(on, wish.replicas)
	if len(pods) != want {
		return fmt.Sprintf("%s has %d pods, and wants %d", on.Name, len(pods), want)
	}
	// A new DaemonSet counts its template generations from 1 again, and takes an older pod with the same number for its own.
	if on.Kind == ReplicaSet || on.Kind == Job || on.Kind == DaemonSet && wish.recreated {
		return ""
	}
	wanted := l.wantsImage(on, wish.image)
	if old := countFunc(pods, func(pod *corev1.Pod) bool { return image(pod.Spec) != wanted }); old > 0 {
		return fmt.Sprintf("%s has %d pods of another revision than %s", on.Name, old, wanted)
	}
	if on.Kind == Deployment && !l.showsPods(on, want) {
		return fmt.Sprintf("the status of %s is not that of %d pods", on.Name, want)
	}
	return ""
}

// showsPods reports whether a Deployment has status for a number of available pods.
func (l *laws) showsPods(on Workload, pods int) bool {
	deployment, ok := l.mirror.get("deployments", on.Namespace(), on.Name).(*appsv1.Deployment)
	return ok && deployment.Status.ObservedGeneration == deployment.Generation &&
		int(deployment.Status.AvailableReplicas) == pods && int(deployment.Status.Replicas) == pods
}

// custom returns a Fleet or a Rollout as stored; nil for other kinds. PodOps does not write them, and of two users that do at once
// either may be the last.
func (l *laws) custom(on Workload) *unstructured.Unstructured {
	if on.Kind != Fleet && on.Kind != Rollout {
		return nil
	}
	object, _ := l.mirror.get(strings.ToLower(string(on.Kind))+"s", on.Namespace(), on.Name).(*unstructured.Unstructured)
	return object
}

// wantsImage returns the image that the pods of a workload have in the end.
func (l *laws) wantsImage(on Workload, image string) string {
	if custom := l.custom(on); custom != nil {
		image, _, _ = unstructured.NestedString(custom.Object, "spec", "image")
	}
	return image
}

// wants returns the number of pods that a workload wants in the end.
func (l *laws) wants(on Workload, replicas int) int {
	switch on.Kind {
	case Fleet, Rollout:
		object := l.custom(on)
		if object == nil {
			return replicas
		}
		n, _, _ := unstructured.NestedInt64(object.Object, "spec", "replicas")
		return int(n)
	case DaemonSet:
		return max(1, l.world.schedule.Nodes)
	case Group:
		return replicas * (1 + workersPerLeader)
	case Job:
		job, ok := l.mirror.get("jobs", on.Namespace(), on.Name).(*batchv1.Job)
		if !ok || job.Status.CompletionTime != nil || job.Spec.Suspend != nil && *job.Spec.Suspend {
			return 0
		}
		return min(int(*job.Spec.Parallelism), int(*job.Spec.Completions-job.Status.Succeeded))
	default:
		return replicas
	}
}

// lifecycleKeys returns the keys of labels of lifecycles, shortened.
func lifecycleKeys(labels map[string]string) string {
	var keys []string
	for key := range labels {
		if strings.Contains(key, appsv1alpha1.LifecycleDomain) {
			keys = append(keys, strings.ReplaceAll(key, appsv1alpha1.LifecycleDomain, ""))
		}
	}
	slices.Sort(keys)
	return strings.Join(keys, " ")
}

// remains returns the labels, annotations and deletion costs of PodOps that an object still has.
func remains(object runtime.Object) string {
	meta := metaObject(object)
	var found []string
	for key := range meta.GetLabels() {
		if strings.Contains(key, appsv1alpha1.LifecycleDomain) && key != appsv1alpha1.ServiceAvailableLabelKey {
			found = append(found, key)
		}
	}
	for key, value := range meta.GetAnnotations() {
		lowest := key == corev1.PodDeletionCost && (value == "-2147483648" || value == "-2147483647")
		if lowest || strings.HasPrefix(key, appsv1alpha1.LifecycleDomain) || strings.HasPrefix(key, appsv1alpha1.DetailAnnotationPrefix) {
			found = append(found, key+"="+cut(value, 60))
		}
	}
	if found == nil {
		return ""
	}
	slices.Sort(found)
	return kindOf(meta) + " " + meta.GetName() + " has " + strings.Join(found, ", ")
}

func kindOf(object metav1.Object) string {
	return strings.TrimPrefix(strings.TrimPrefix(fmt.Sprintf("%T", object), "*v1."), "*")
}
