package world

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

const (
	// evictAgain is the time after which kubectl drain evicts a pod again.
	evictAgain = 5 * time.Second

	// cycle is the time between two rounds of a descheduler.
	cycle = 15 * time.Second
)

func scaleBody(on Workload) *autoscalingv1.Scale {
	return &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: on.Namespace(), Name: on.Name}}
}

// pod returns the pod of an act: the Nth by name. Text narrows the choice: pods that are "waiting", "idle" pods, pods of
// the "new" or the "old" image.
func (w *World) pod(ctx context.Context, a Act, on Workload) (*corev1.Pod, error) {
	pods, err := w.pods(ctx, on)
	if err != nil {
		return nil, err
	}
	isNew := func(pod corev1.Pod) bool { return image(pod.Spec) == w.wished(on.Name).image }
	pods = slices.DeleteFunc(pods, func(pod corev1.Pod) bool {
		return a.Text == "waiting" && !waits(&pod) || a.Text == "idle" && waits(&pod) || a.Text == "new" && !isNew(pod) || a.Text == "old" && isNew(pod)
	})
	if len(pods) == 0 {
		return nil, errors.New("no such pod")
	}
	return &pods[a.N%len(pods)], nil
}

func (w *World) deletePod(ctx context.Context, a Act, on Workload) error {
	pod, err := w.pod(ctx, a, on)
	if err != nil {
		return err
	}
	return w.client(person).Delete(ctx, pod)
}

func (w *World) evictPod(ctx context.Context, a Act, on Workload) error {
	pod, err := w.pod(ctx, a, on)
	if err != nil {
		return err
	}
	return w.evict(ctx, person, pod)
}

// evict evicts a pod by name.
func (w *World) evict(ctx context.Context, user string, pod *corev1.Pod) error {
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	return w.client(user).SubResource("eviction").Create(ctx, pod, eviction)
}

func (w *World) labelPod(ctx context.Context, a Act, on Workload) error {
	user, value := person, any(nil)
	if a.Verb == "label-pod" {
		user, value = labeller, appsv1alpha1.ControlLabelValue
	}
	pod, err := w.pod(ctx, a, on)
	if err != nil {
		return err
	}
	return w.patch(ctx, user, pod, labelPatch(appsv1alpha1.ControlLabelKey, value))
}

// leader is the label by which the controller of a Group selects its workers.
const leader = "leader"

// releasePod changes the labels by which a controller selects a pod, so that it releases the pod.
func (w *World) releasePod(ctx context.Context, a Act, on Workload) error {
	pod, err := w.pod(ctx, a, on)
	if err != nil {
		return err
	}
	labels := map[string]any{app: released(on)}
	if _, isWorker := pod.Labels[leader]; isWorker {
		labels[leader] = released(on)
	}
	return w.patch(ctx, person, pod, map[string]any{"metadata": map[string]any{"labels": labels}})
}

// released returns the label of the pods that were released by a workload.
func released(on Workload) string { return on.Name + "-released" }

// cost sets the deletion cost of a pod.
func (w *World) cost(ctx context.Context, a Act, on Workload) error {
	pod, err := w.pod(ctx, Act{N: a.N}, on)
	if err != nil {
		return err
	}
	return w.patch(ctx, person, pod, map[string]any{"metadata": map[string]any{"annotations": map[string]any{corev1.PodDeletionCost: a.Text}}})
}

func (w *World) fail(ctx context.Context, a Act, on Workload) error {
	pod, err := w.pod(ctx, a, on)
	if err != nil {
		return err
	}
	w.nodes.Fail(pod, a.For)
	return nil
}

// drain drains the Nth node as kubectl does: it cordons the node, evicts each pod by name until it is gone, and gives up
// after a time. The node is uncordoned afterwards if Text is "uncordon".
func (w *World) drain(ctx context.Context, a Act, on Workload) error {
	name := w.node(a.N)
	if err := w.unschedulable(ctx, name, true); err != nil {
		return err
	}
	var list corev1.PodList
	if err := w.client(drainer).List(ctx, &list); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	timeout, cancel := context.WithTimeout(ctx, a.For)
	defer cancel()
	results := make(chan error)
	evicting := 0
	for _, pod := range list.Items {
		if pod.Spec.NodeName != name || !isActive(&pod) || isDaemon(&pod) || on.Name != "" && pod.Labels[app] != on.Name {
			continue
		}
		evicting++
		go func() { results <- w.evictUntilGone(timeout, drainer, &pod) }()
	}
	var failed error
	for range evicting {
		if err := <-results; err != nil {
			failed = err
		}
	}
	if failed == nil {
		w.grant("drain")
	}
	if a.Text == "uncordon" {
		return errors.Join(failed, w.unschedulable(ctx, name, false))
	}
	return failed
}

func isDaemon(pod *corev1.Pod) bool {
	controller := metav1.GetControllerOf(pod)
	return controller != nil && controller.Kind == "DaemonSet"
}

// grant counts what a client was granted.
func (w *World) grant(act string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.granted[act]++
}

// evictUntilGone evicts a pod by name until the request is accepted, and waits until that pod is gone.
func (w *World) evictUntilGone(ctx context.Context, user string, pod *corev1.Pod) error {
	for {
		err := w.evict(ctx, user, pod)
		switch {
		case err == nil:
			w.grant("evicted by " + user)
			return w.awaitGone(ctx, pod)
		case apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsTooManyRequests(err):
			return err
		}
		if !pause(ctx, evictAgain) {
			return fmt.Errorf("evicting %s: %w", pod.Name, ctx.Err())
		}
	}
}

func (w *World) awaitGone(ctx context.Context, pod *corev1.Pod) error {
	for pause(ctx, time.Second) {
		var live corev1.Pod
		err := w.client(drainer).Get(ctx, client.ObjectKeyFromObject(pod), &live)
		if apierrors.IsNotFound(err) || err == nil && live.UID != pod.UID {
			return nil
		}
	}
	return fmt.Errorf("waiting until %s is gone: %w", pod.Name, ctx.Err())
}

// evictSome is a descheduler with a limit: in each cycle it tries one pod after the other until N evictions were
// accepted in all. It counts what was accepted, and no more.
func (w *World) evictSome(ctx context.Context, a Act, on Workload) error {
	accepted := 0
	for end := time.Now().Add(a.For); time.Now().Before(end); {
		pods, err := w.pods(ctx, on)
		if err != nil {
			return err
		}
		for _, pod := range pods {
			if accepted == a.N {
				return nil
			}
			if err := w.evict(ctx, evictor, &pod); err == nil {
				accepted++
				w.grant("evict-some")
			}
		}
		if !pause(ctx, cycle) {
			return ctx.Err()
		}
	}
	return nil
}

// evictByName evicts the pod with one name again and again, without a UID, until the first success.
func (w *World) evictByName(ctx context.Context, a Act, on Workload) error {
	pod, err := w.pod(ctx, a, on)
	if err != nil {
		return err
	}
	timeout, cancel := context.WithTimeout(ctx, a.For)
	defer cancel()
	return w.evictUntilGone(timeout, evictor, pod)
}

// node returns the name of the Nth node.
func (w *World) node(n int) string { return fmt.Sprintf("node-%d", n%max(1, w.schedule.Nodes)+1) }

func (w *World) unschedulable(ctx context.Context, name string, on bool) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return w.patch(ctx, drainer, node, specPatch("unschedulable", on))
}

func (w *World) cordon(ctx context.Context, a Act, _ Workload) error {
	return w.unschedulable(ctx, w.node(a.N), a.Verb == "cordon")
}

func (w *World) loseNode(ctx context.Context, a Act, _ Workload) error {
	return w.nodes.Lose(ctx, w.node(a.N))
}

func (w *World) addNode(ctx context.Context, a Act, _ Workload) error {
	return w.restore(ctx, w.node(a.N))
}

// restore adds a node that was lost, with the labels of DaemonSets.
func (w *World) restore(ctx context.Context, name string) error {
	if err := w.nodes.Add(ctx, name); err != nil {
		return err
	}
	return w.labelNode(ctx, name, true, "")
}

func (w *World) nodeLabel(ctx context.Context, a Act, on Workload) error {
	w.laws.wishes(on.Name)
	return w.labelNodes(ctx, on.Name, a.Verb == "label-node", a.N)
}

// labelNodes puts the label that a DaemonSet selects on the Nth node, or takes it off; on all nodes if n is -1.
func (w *World) labelNodes(ctx context.Context, daemon string, on bool, n int) error {
	for i := range max(1, w.schedule.Nodes) {
		if n >= 0 && w.node(n) != w.node(i) {
			continue
		}
		if err := w.labelNode(ctx, w.node(i), on, daemon); err != nil {
			return err
		}
	}
	return nil
}

// labelNode labels a node for a DaemonSet, or for all of the schedule.
func (w *World) labelNode(ctx context.Context, name string, on bool, daemon string) error {
	for _, workload := range w.schedule.Workloads {
		if workload.Kind != DaemonSet || daemon != "" && workload.Name != daemon {
			continue
		}
		var value any
		if on {
			value = "true"
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := w.patch(ctx, setup, node, labelPatch(pool+workload.Name, value)); err != nil {
			return fmt.Errorf("labelling node %s: %w", name, err)
		}
	}
	return nil
}

// replicas returns the number that a workload has at present.
func (w *World) replicas(ctx context.Context, user string, on Workload) (int, bool) {
	scale := scaleBody(on)
	if on.Kind == DaemonSet || on.Kind == Job {
		return 0, false
	}
	if err := w.client(user).SubResource("scale").Get(ctx, object(on), scale); err != nil {
		return 0, false
	}
	return int(scale.Spec.Replicas), true
}
