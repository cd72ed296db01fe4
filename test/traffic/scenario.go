package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	many = 20
	few  = 8

	// surge is maxUnavailable, which is maxSurge too, of many pods.
	surge = many / 4

	// nodes of the cluster.
	nodes = 4
)

// scenario is an operation on a workload under load.
type scenario struct {
	name, title string
	replicas    int // at first
	remaining   int // in the end
	failing     float64

	// kind of the workload; empty: Deployment.
	kind string

	// surge is the number of pods beyond replicas that may exist at a time.
	surge int

	// policy is the availablePolicy of the rule; empty: maxUnavailable.
	policy string

	// drains is true for pods with a drain endpoint, and without an adapter: a follower adds and removes them, as kube-proxy does, and
	// their connections stay.
	drains bool

	// comes is true when pods become available while it runs, not only operable.
	comes bool

	// noOperation is true when it operates on no pod, harmless when no request needs to fail without PodOps.
	noOperation, harmless bool

	act func(ctx context.Context, g *scenarioRun) error
	// done reports whether it has reached its end, besides that all pods are ready.
	done func(g *scenarioRun, pods []corev1.Pod) (bool, string)
}

func scenarios() []scenario {
	return []scenario{
		{name: "restart", title: "rolling restart of 20 pods", replicas: many, remaining: many, surge: surge, comes: true, act: restart, done: replaced},
		{name: "scale-in", title: "from 20 pods to 8", replicas: many, remaining: few, act: scaleIn, done: always},
		{name: "in-place", title: "a new image for 20 pods, in place", replicas: many, remaining: many, comes: true, act: inPlace, done: updated},
		{
			name: "flaky", title: "rolling restart of 20 pods, and 20 % of the calls to the load balancer fail", replicas: many, remaining: many,
			surge: surge, failing: 0.2, comes: true, act: restart, done: replaced,
		},
		{
			name: "killed", title: "a new image for 20 pods, in place, and the manager is killed and started again twice", replicas: many, remaining: many,
			comes: true, act: inPlaceAndKill, done: updated,
		},
		{
			name: "drain", title: "kubectl drain of two of the four nodes with 20 pods, one after the other", replicas: many, remaining: many,
			surge: surge, comes: true, act: drain, done: drained,
		},
		{
			name: "statefulset", title: "rolling restart of a StatefulSet of 8 pods", kind: "StatefulSet", replicas: few, remaining: few,
			comes: true, act: restart, done: replaced,
		},
		{
			name: "daemonset", title: "rolling restart of a DaemonSet on 4 nodes", kind: "DaemonSet", replicas: nodes, remaining: nodes,
			comes: true, act: restart, done: replaced,
		},
		{
			name: "podoperation", title: "a PodOperation restarts 20 pods of a Deployment in place", replicas: many, remaining: many,
			comes: true, act: podOperation, done: restarted,
		},
		{
			name: "one-delete", title: "a delete of the only pod", replicas: 1, remaining: 1, surge: 1, policy: noneToSpare,
			comes: true, act: deletePod, done: replaced,
		},
		{
			name: "one-drain", title: "kubectl drain of the node with the only pod", replicas: 1, remaining: 1, surge: 1, policy: noneToSpare,
			comes: true, act: drain, done: drained,
		},
		{
			name: "one-restart", title: "a PodOperation restarts the only pod in place", replicas: 1, remaining: 1, surge: 1, policy: noneToSpare,
			comes: true, act: podOperation, done: restarted,
		},
		{
			name: "one-resize", title: "a PodOperation resizes the only pod in place", replicas: 1, remaining: 1, surge: 1, policy: noneToSpare,
			harmless: true, comes: true, act: resize, done: resized,
		},
		{
			name: "connections", title: "rolling restart of 20 pods behind a Service alone; clients and streams keep their connections",
			replicas: many, remaining: many, surge: surge, drains: true, comes: true, act: restart, done: replaced,
		},
		{
			name: "port", title: "the Service of 20 pods gets another target port", replicas: many, remaining: many, noOperation: true, harmless: true,
			act: changePort, done: always,
		},
	}
}

// noneToSpare lets no pod go before another is available, which its Deployment starts.
const noneToSpare = `minAvailableValue: "100%", surge: 1`

// deletePod deletes the first pod, and repeats the request while it is held.
func deletePod(ctx context.Context, g *scenarioRun) error {
	pods, err := g.harness.podsOf(ctx, g.namespace)
	if err != nil || len(pods) == 0 {
		return errors.Join(err, errNoPod)
	}
	return g.harness.await(ctx, "the delete is carried out", func(ctx context.Context) (bool, string, error) {
		err := g.harness.admin.Delete(ctx, &pods[0], client.Preconditions{UID: &pods[0].UID})
		if apierrors.IsTooManyRequests(err) {
			return false, err.Error(), nil
		}
		return err == nil, "", err
	})
}

var errNoPod = errors.New("there is no pod to delete")

// changePort sends the requests of all pods to their other port.
func changePort(ctx context.Context, g *scenarioRun) error {
	g.moved.Store(true)
	if g.side == withoutPodOps {
		return nil // the follower reads the port
	}
	return g.kubectl(ctx, "patch", "service", "web", "--patch", fmt.Sprintf(`{"spec":{"ports":[{"port":80,"targetPort":%d}]}}`, otherPort))
}

func restart(ctx context.Context, g *scenarioRun) error {
	return g.kubectl(ctx, "rollout", "restart", strings.ToLower(g.scenario.workload())+"/web")
}

// restartOperation restarts the pods of the Deployment.
const restartOperation = `apiVersion: apps.kusionstack.io/v1alpha1
kind: PodOperation
metadata:
  name: restart-web
spec:
  target:
    owner: {kind: Deployment, name: web}
  action:
    type: Restart
`

// podOperation applies restartOperation. Without PodOps a new image restarts the containers.
func podOperation(ctx context.Context, g *scenarioRun) error {
	if g.side == withoutPodOps {
		return inPlace(ctx, g)
	}
	return g.harness.stage.KubectlWith(ctx, restartOperation, "--namespace", g.namespace, "apply", "-f", "-")
}

// resizeOperation changes the resources of the pods of the Deployment.
const resizeOperation = `apiVersion: apps.kusionstack.io/v1alpha1
kind: PodOperation
metadata:
  name: resize-web
spec:
  target:
    owner: {kind: Deployment, name: web}
  action:
    type: Resize
    resize:
      containers:
      - name: web
        requests: {cpu: ` + secondCPU + `}
`

// resize applies resizeOperation. Without PodOps a client resizes the pods at once.
func resize(ctx context.Context, g *scenarioRun) error {
	if g.side == withPodOps {
		return g.harness.stage.KubectlWith(ctx, resizeOperation, "--namespace", g.namespace, "apply", "-f", "-")
	}
	pods, err := g.harness.podsOf(ctx, g.namespace)
	for i := range pods {
		patch := fmt.Sprintf(`{"spec":{"containers":[{"name":"web","resources":{"requests":{"cpu":%q}}}]}}`, secondCPU)
		err = errors.Join(err, g.kubectl(ctx, "patch", "pod", pods[i].Name, "--subresource=resize", "--patch", patch))
	}
	return err
}

// resized reports whether the kubelet has resized the first pods.
func resized(g *scenarioRun, pods []corev1.Pod) (bool, string) {
	count := 0
	for i := range pods {
		statuses := pods[i].Status.ContainerStatuses
		if slices.Contains(g.first, pods[i].UID) && len(statuses) > 0 && statuses[0].Resources != nil &&
			statuses[0].Resources.Requests.Cpu().String() == secondCPU {
			count++
		}
	}
	return count == g.scenario.replicas, fmt.Sprintf("%d of %d pods are resized", count, g.scenario.replicas)
}

// restarted reports whether the containers of the first pods have restarted once.
func restarted(g *scenarioRun, pods []corev1.Pod) (bool, string) {
	count := 0
	for i := range pods {
		statuses := pods[i].Status.ContainerStatuses
		if slices.Contains(g.first, pods[i].UID) && len(statuses) > 0 && statuses[0].RestartCount == 1 {
			count++
		}
	}
	return count == g.scenario.replicas, fmt.Sprintf("%d of %d pods have restarted", count, g.scenario.replicas)
}

// workload returns the kind of the workload.
func (s scenario) workload() string { return cmp.Or(s.kind, "Deployment") }

// drain drains the first two nodes with pods, one after the other.
func drain(ctx context.Context, g *scenarioRun) error {
	pods, err := g.harness.podsOf(ctx, g.namespace)
	if err != nil {
		return err
	}
	on := map[string]bool{}
	for i := range pods {
		on[pods[i].Spec.NodeName] = true
	}
	for _, node := range slices.Sorted(maps.Keys(on))[:min(2, len(on))] {
		err := g.kubectl(ctx, "drain", node, "--pod-selector=app=web", "--timeout=10m")
		if err = errors.Join(err, g.kubectl(context.WithoutCancel(ctx), "uncordon", node)); err != nil {
			return err
		}
		g.drained = append(g.drained, node)
	}
	return nil
}

// drained reports whether the first pods of the drained nodes are gone.
func drained(g *scenarioRun, pods []corev1.Pod) (bool, string) {
	there := 0
	for i := range pods {
		if slices.Contains(g.first, pods[i].UID) && slices.Contains(g.drained, pods[i].Spec.NodeName) {
			there++
		}
	}
	return there == 0, fmt.Sprintf("%d pods of the drained nodes are left", there)
}

func scaleIn(ctx context.Context, g *scenarioRun) error {
	return g.kubectl(ctx, "scale", "deployment/web", fmt.Sprintf("--replicas=%d", few))
}

func inPlace(ctx context.Context, g *scenarioRun) error {
	return g.harness.await(ctx, "every pod is updated", func(ctx context.Context) (bool, string, error) {
		pods, err := g.harness.podsOf(ctx, g.namespace)
		if err != nil {
			return false, "", err
		}
		// A step that fails is repeated in the next round.
		stepErr := g.operate(ctx, pods)
		ok, seen := updated(g, pods)
		return ok, seen, stepErr
	})
}

// inPlaceAndKill kills the manager after a fifth of the pods, and again after half of them.
// The operation controller continues meanwhile, as far as it can.
//
// It does not interrupt a rollout: the webhook that defers deletes fails open while no
// manager runs, by design. An operation controller that uses labels waits.
func inPlaceAndKill(ctx context.Context, g *scenarioRun) error {
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return inPlace(ctx, g) })
	both.Go(func() error {
		for _, enough := range []int{many / 5, many / 2} {
			if err := g.harness.await(ctx, fmt.Sprintf("%d pods are updated", enough), func(ctx context.Context) (bool, string, error) {
				pods, err := g.harness.podsOf(ctx, g.namespace)
				count := countUpdated(pods)
				return err == nil && count >= enough, fmt.Sprintf("%d are", count), err
			}); err != nil {
				return err
			}
			if err := g.killController(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	return both.Wait()
}

func always(*scenarioRun, []corev1.Pod) (bool, string) { return true, "" }

func replaced(g *scenarioRun, pods []corev1.Pod) (bool, string) {
	gone := g.gone(pods)
	return gone == g.scenario.replicas, fmt.Sprintf("%d of %d pods are replaced", gone, g.scenario.replicas)
}

func updated(g *scenarioRun, pods []corev1.Pod) (bool, string) {
	count := countUpdated(pods)
	return count == g.scenario.replicas, fmt.Sprintf("%d of %d pods are updated", count, g.scenario.replicas)
}

func countUpdated(pods []corev1.Pod) int {
	count := 0
	for i := range pods {
		if _, operating := pods[i].Labels[operatingLabel]; runsImage(&pods[i], secondImage) && !operating {
			count++
		}
	}
	return count
}

// gone returns how many of the first pods no longer exist.
func (g *scenarioRun) gone(pods []corev1.Pod) int {
	there := map[types.UID]bool{}
	for i := range pods {
		there[pods[i].UID] = true
	}
	count := 0
	for _, uid := range g.first {
		if !there[uid] {
			count++
		}
	}
	return count
}
