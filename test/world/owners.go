package world

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

const (
	// drainTime is the annotation of pods behind the load balancer: the time that one takes to drain.
	drainTime = "test.podops.dev/drain"

	// protection is the finalizer of the load balancer.
	protection = appsv1alpha1.ProtectionFinalizerPrefix + "/balancer"

	// ownPeriod is the time between two rounds of the controllers of custom resources.
	ownPeriod = 2 * time.Second
)

// own runs the controllers of Fleets, Rollouts and Groups, one for each: the requests of one may wait for their answers.
func (w *World) own(ctx context.Context) {
	var controllers sync.WaitGroup
	defer controllers.Wait()
	for _, workload := range w.schedule.Workloads {
		reconcile := map[Kind]func(context.Context, Workload) error{Fleet: w.ownFleet, Rollout: w.ownRollout, Group: w.ownGroup}[workload.Kind]
		if reconcile == nil {
			continue // Kubernetes has the controller
		}
		controllers.Go(func() {
			for pause(ctx, ownPeriod) {
				if err := reconcile(ctx, workload); client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
					w.trace.note(workload.Name + ": " + cut(err.Error(), 120))
				}
			}
		})
	}
}

// customSpec returns a custom resource with its numbers; nil if it does not exist, or is being deleted: its controller
// creates no pods for the garbage collector.
func (w *World) customSpec(on Workload) (object *unstructured.Unstructured, replicas int, image string) {
	object, ok := w.laws.object(strings.ToLower(string(on.Kind))+"s", on.Namespace(), on.Name).(*unstructured.Unstructured)
	if !ok || object.GetDeletionTimestamp() != nil {
		return nil, 0, ""
	}
	n, _, _ := unstructured.NestedInt64(object.Object, "spec", "replicas")
	image, _, _ = unstructured.NestedString(object.Object, "spec", "image")
	return object, int(n), image
}

// ownFleet creates, replaces and removes pods, at most one of which may be unavailable: an old pod that is unready goes first.
// When the deletion of a pod is refused, it tries the next.
func (w *World) ownFleet(ctx context.Context, on Workload) error {
	object, replicas, wanted := w.customSpec(on)
	if object == nil {
		return nil
	}
	if err := w.adoptPods(ctx, on, object); err != nil {
		return err
	}
	pods := w.owned(on, object)
	for range replicas - len(pods) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: on.Namespace(), GenerateName: on.Name + "-"}}
		made := template(on)
		pod.Labels, pod.Annotations, pod.Spec = made.Labels, made.Annotations, made.Spec
		pod.Spec.Containers[0].Image = wanted
		if err := controllerutil.SetControllerReference(object, pod, w.scheme); err != nil {
			return fmt.Errorf("owning a pod: %w", err)
		}
		if err := w.client(owner).Create(ctx, pod); err != nil {
			return fmt.Errorf("creating a pod: %w", err)
		}
	}
	isUnready := func(pod corev1.Pod) bool { return !isTrue(&pod, corev1.PodReady) }
	surplus := len(pods) - replicas
	old := slices.DeleteFunc(slices.Clone(pods), func(pod corev1.Pod) bool { return image(pod.Spec) == wanted })
	unready := slices.DeleteFunc(slices.Clone(old), func(pod corev1.Pod) bool { return !isUnready(pod) })
	switch {
	case surplus > 0:
		w.removeAny(ctx, pods, surplus)
	case len(unready) > 0:
		w.removeAny(ctx, unready, 1)
	case surplus == 0 && !slices.ContainsFunc(pods, isUnready) && len(old) > 0:
		w.removeAny(ctx, old, 1)
	}
	return nil
}

// adoptPods makes a Fleet the controller of its pods that have none: they were orphaned.
func (w *World) adoptPods(ctx context.Context, on Workload, object client.Object) error {
	isOrphan := func(pod *corev1.Pod) bool { return isActive(pod) && metav1.GetControllerOfNoCopy(pod) == nil }
	for _, pod := range w.laws.liveWith(on, isOrphan) {
		if err := controllerutil.SetControllerReference(object, &pod, w.scheme); err != nil {
			return fmt.Errorf("adopting pod %s: %w", pod.Name, err)
		}
		if err := w.client(owner).Update(ctx, &pod); err != nil {
			return fmt.Errorf("adopting pod %s: %w", pod.Name, err)
		}
	}
	return nil
}

// removeAny deletes n of the pods. A pod whose deletion is refused is left for the next.
func (w *World) removeAny(ctx context.Context, pods []corev1.Pod, n int) {
	for _, pod := range pods {
		if n == 0 {
			return
		}
		if err := w.client(owner).Delete(ctx, &pod); err == nil {
			n--
		}
	}
}

// owned returns the active pods of an object.
func (w *World) owned(on Workload, object metav1.Object) []corev1.Pod {
	return slices.DeleteFunc(w.laws.live(on), func(pod corev1.Pod) bool { return !isActive(&pod) || !metav1.IsControlledBy(&pod, object) })
}

func countFunc[T any](items []T, is func(T) bool) (n int) {
	for _, item := range items {
		if is(item) {
			n++
		}
	}
	return n
}

// ownRollout owns a ReplicaSet for each image: the one of the present image gets one more replica than it has ready, the
// others lose one for each that is ready there, half of the replicas at a time.
func (w *World) ownRollout(ctx context.Context, on Workload) error {
	object, replicas, wanted := w.customSpec(on)
	if object == nil {
		return nil
	}
	sets := w.laws.liveSets(on)
	var current *appsv1.ReplicaSet
	olds := 0
	for _, set := range sets {
		if metav1.GetControllerOf(set) == nil {
			if err := w.adoptSet(ctx, object, set); err != nil {
				return err
			}
		}
		if !metav1.IsControlledBy(set, object) {
			continue
		}
		if image(set.Spec.Template.Spec) == wanted {
			current = set
		} else {
			olds += int(*set.Spec.Replicas)
		}
	}
	if current == nil {
		return w.createRevision(ctx, on, object, wanted)
	}
	number := min(replicas, int(current.Status.ReadyReplicas)+max(1, replicas/2))
	if olds == 0 {
		number = replicas
	}
	if err := w.setReplicas(ctx, current, number); err != nil {
		return err
	}
	keep := max(0, replicas-int(current.Status.ReadyReplicas))
	for _, set := range sets {
		if set.UID == current.UID || !metav1.IsControlledBy(set, object) {
			continue
		}
		number := min(keep, int(*set.Spec.Replicas))
		if err := w.setReplicas(ctx, set, number); err != nil {
			return err
		}
		keep -= number
	}
	return nil
}

// adoptSet makes a Rollout the controller of a ReplicaSet that has none: it was orphaned.
func (w *World) adoptSet(ctx context.Context, object client.Object, set *appsv1.ReplicaSet) error {
	if err := controllerutil.SetControllerReference(object, set, w.scheme); err != nil {
		return fmt.Errorf("adopting ReplicaSet %s: %w", set.Name, err)
	}
	return w.client(owner).Update(ctx, set)
}

func (w *World) createRevision(ctx context.Context, on Workload, object client.Object, wanted string) error {
	labels := map[string]string{app: on.Name, "revision": wanted}
	made := template(on)
	maps.Copy(made.Labels, labels)
	made.Spec.Containers[0].Image = wanted
	zero := int32(0)
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: on.Namespace(), Name: on.Name + "-" + strings.ToLower(wanted), Labels: labels},
		Spec:       appsv1.ReplicaSetSpec{Replicas: &zero, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: made},
	}
	if err := controllerutil.SetControllerReference(object, set, w.scheme); err != nil {
		return fmt.Errorf("owning a ReplicaSet: %w", err)
	}
	return w.client(owner).Create(ctx, set)
}

// setReplicas updates the number of a ReplicaSet if it differs.
func (w *World) setReplicas(ctx context.Context, set *appsv1.ReplicaSet, n int) error {
	if int(*set.Spec.Replicas) == n {
		return nil
	}
	number := int32(n)
	set.Spec.Replicas = &number
	return w.client(owner).Update(ctx, set)
}

// ownGroup creates the StatefulSet of the workers of each leader.
func (w *World) ownGroup(ctx context.Context, on Workload) error {
	isAlone := func(pod *corev1.Pod) bool { // neither leaves, nor is a worker
		return isActive(pod) && strings.Count(pod.Name, "-") == strings.Count(on.Name, "-")+1 &&
			w.laws.mirror.get("statefulsets", pod.Namespace, pod.Name) == nil
	}
	for _, pod := range w.laws.liveWith(on, isAlone) {
		if err := client.IgnoreAlreadyExists(w.client(owner).Create(ctx, newWorkers(&pod, image(pod.Spec)))); err != nil {
			return fmt.Errorf("creating the workers of %s: %w", pod.Name, err)
		}
	}
	return nil
}

// balance runs the load balancer: it puts its finalizer on pods that may serve, and takes it off once they are drained.
func (w *World) balance(ctx context.Context) {
	draining := map[string]time.Time{}
	for pause(ctx, time.Second) {
		for _, on := range w.schedule.Workloads {
			if !on.Balanced {
				continue
			}
			left := on
			left.Name = released(on)
			for _, behind := range []Workload{on, left} {
				changes := func(pod *corev1.Pod) bool {
					return slices.Contains(pod.Finalizers, protection) != maySendTo(pod) || !draining[string(pod.UID)].IsZero()
				}
				for _, pod := range w.laws.liveWith(behind, changes) {
					w.balancePod(ctx, &pod, draining)
				}
			}
		}
	}
}

// maySendTo reports whether the load balancer may send traffic to a pod.
func maySendTo(pod *corev1.Pod) bool {
	return isActive(pod) && isTrue(pod, corev1.PodReady) && !prepares(pod)
}

func (w *World) balancePod(ctx context.Context, pod *corev1.Pod, draining map[string]time.Time) {
	on := slices.Contains(pod.Finalizers, protection)
	serves := maySendTo(pod)
	key := string(pod.UID)
	switch {
	case serves && !on && pod.Labels[appsv1alpha1.ControlLabelKey] == appsv1alpha1.ControlLabelValue:
		_ = w.patch(ctx, balancer, pod, finalizers(append(slices.Clone(pod.Finalizers), protection))) // tried again
	case serves:
		delete(draining, key)
	case on && draining[key].IsZero():
		takes, _ := time.ParseDuration(pod.Annotations[drainTime])
		draining[key] = time.Now().Add(takes)
	case on && !time.Now().Before(draining[key]):
		without := slices.DeleteFunc(slices.Clone(pod.Finalizers), func(f string) bool { return f == protection })
		if w.patch(ctx, balancer, pod, finalizers(without)) == nil {
			delete(draining, key)
		}
	}
}

func finalizers(all []string) map[string]any {
	return map[string]any{"metadata": map[string]any{"finalizers": all}}
}

// prepares reports whether traffic must be off a pod, because an operation on it was permitted.
func prepares(pod *corev1.Pod) bool {
	for key := range pod.Labels {
		prefix, _, _ := strings.Cut(key, "/")
		switch prefix {
		case appsv1alpha1.PrepareLabelPrefix, appsv1alpha1.OperateLabelPrefix:
			return true
		}
	}
	return false
}

// lostLeader reports whether a pod is a worker whose StatefulSet was deleted with the leader.
func (l *laws) lostLeader(pod *corev1.Pod) bool {
	controller := metav1.GetControllerOf(pod)
	if controller == nil || controller.Kind != string(StatefulSet) {
		return false
	}
	set, ok := l.mirror.get("statefulsets", pod.Namespace, controller.Name).(*appsv1.StatefulSet)
	return !ok || set.UID != controller.UID
}
