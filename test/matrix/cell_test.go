// Package matrix_test removes pods in each way that Kubernetes has, on the real controllers of the local
// control plane, and compares the outcomes with the table of docs/workloads.md.
package matrix_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/test/audit"
	"github.com/podops-dev/podops/test/managerprocess"
	"github.com/podops-dev/podops/test/stage/stagetest"
)

// cell is one row of the matrix while it runs: a namespace, and the observations in it.
type cell struct {
	*stagetest.Scene
	rule appsv1alpha1.TransitionRule

	// workload owns the pods, with so many of them desired; nil for bare pods.
	workload client.Object
	desired  int

	// removed are the pods that became terminating or disappeared, and guarded the pods among them that a
	// rule had permitted to go, and whose traffic was off, or that were not controlled; by name.
	guarded, removed map[types.UID]string

	// least is the smallest number of available pods since measure.
	measured bool
	least    int

	// before are the pods at the time of the request.
	before map[types.UID]string

	// kept is true once the deletion of a pod has begun although its ReplicaSet had no pod beyond spec.replicas: admission
	// keeps that number.
	kept bool
}

// newCell creates a namespace with one PodTransitionRule and follows its pods until ctx ends.
func newCell(ctx context.Context, w *cluster, rule appsv1alpha1.TransitionRule) (*cell, error) {
	scene, err := w.NewScene(ctx, "matrix")
	if err != nil {
		return nil, err
	}
	c := &cell{Scene: scene, rule: rule, guarded: map[types.UID]string{}, removed: map[types.UID]string{}}
	err = c.Follow(ctx, func(kind watch.EventType, before, pod *corev1.Pod) {
		c.podChanged(kind, before, pod)
		c.noteKept(ctx, pod)
	})
	if err != nil {
		return nil, err
	}
	return c, c.Create(ctx, c.Rule(rule))
}

func (c *cell) podChanged(kind watch.EventType, before, pod *corev1.Pod) {
	if pod.DeletionTimestamp != nil || kind == watch.Deleted {
		if _, known := c.removed[pod.UID]; !known {
			c.removed[pod.UID] = pod.Name
			if before != nil && (isGuarded(before) || !appsv1alpha1.IsControlled(before.Labels)) {
				c.guarded[pod.UID] = pod.Name
			}
		}
	}
	if c.measured {
		c.least = min(c.least, c.available())
	}
}

// noteKept compares the pods of a ReplicaSet with its spec.replicas when the deletion of one of them has begun.
func (c *cell) noteKept(ctx context.Context, pod *corev1.Pod) {
	_, begun := pod.Annotations[appsv1alpha1.PreviousDeletionCostAnnotationKey]
	controller := metav1.GetControllerOfNoCopy(pod)
	if !begun || controller == nil || pod.DeletionTimestamp != nil {
		return
	}
	set := &appsv1.ReplicaSet{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: controller.Name}, set); err != nil {
		return
	}
	count := c.Count(func(other *corev1.Pod) bool {
		return metav1.IsControlledBy(other, set) && other.DeletionTimestamp == nil
	})
	c.kept = c.kept || count <= int(*set.Spec.Replicas)
}

// isGuarded reports whether the rules have permitted an operation on the pod, and its traffic is off.
func isGuarded(pod *corev1.Pod) bool {
	facts := lifecycle.NewPodFacts(pod)
	return facts.Permitted() && !facts.Ready
}

// available counts the available pods. The caller holds the lock.
func (c *cell) available() int { return c.Count(isAvailable) }

// isAvailable reports whether a pod is available. One without the control label is while it is Ready.
func isAvailable(pod *corev1.Pod) bool {
	if appsv1alpha1.IsControlled(pod.Labels) {
		return podstate.Available(pod)
	}
	return stagetest.Serves(pod)
}

// measure begins to measure the smallest number of available pods, at the request.
func (c *cell) measure(before map[types.UID]string) {
	c.Lock()
	defer c.Unlock()
	c.measured, c.least, c.before = true, c.available(), before
}

// uids returns the names of the pods by UID.
func (c *cell) uids() map[types.UID]string {
	c.Lock()
	defer c.Unlock()
	names := map[types.UID]string{}
	for uid, pod := range c.Pods {
		names[uid] = pod.Name
	}
	return names
}

// awaitAvailable waits until exactly so many pods exist, and all of them are available and in no lifecycle.
func (c *cell) awaitAvailable(ctx context.Context, want int) error {
	return c.Await(ctx, fmt.Sprintf("%d pods", want), func() bool { return c.serve(want) })
}

// serve reports whether exactly so many pods exist, and all of them are available, without a trace of a
// lifecycle. The caller holds the lock.
func (c *cell) serve(want int) bool {
	settled := len(c.Pods) == want && c.available() == want
	for _, pod := range c.Pods {
		settled = settled && len(traces(pod)) == 0
	}
	return settled
}

// waiting returns the pods that are in a lifecycle, or that are in none.
func (c *cell) waiting(waits bool) (pods []*corev1.Pod) {
	c.Lock()
	defer c.Unlock()
	for _, pod := range c.Pods {
		if stagetest.IsWaiting(pod) == waits {
			pods = append(pods, pod.DeepCopy())
		}
	}
	return pods
}

// awaitWaiting waits until a pod is in a lifecycle.
func (c *cell) awaitWaiting(ctx context.Context) error {
	return c.Await(ctx, "a lifecycle", func() bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(c.Pods)), stagetest.IsWaiting)
	})
}

// patch sends a merge patch.
func (c *cell) patch(ctx context.Context, object client.Object, patch string) error {
	return c.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(patch)))
}

// kubectl runs kubectl in the namespace of the cell.
func (c *cell) kubectl(ctx context.Context, args ...string) error {
	return c.Kubectl(ctx, append([]string{"--namespace", c.Namespace}, args...)...)
}

// heldAt returns where requests were held: at the ReplicaSet, at the delete or at the eviction.
func (c *cell) heldAt() (string, error) {
	requests, err := c.Requests()
	if err != nil {
		return "", err
	}
	places := map[string]bool{}
	c.Lock()
	if c.kept {
		places["ReplicaSet"] = true
	}
	c.Unlock()
	for _, e := range requests {
		switch {
		case e.Code != 429 || !strings.Contains(e.Message, "PodOps"):
		case e.Target() == "pods":
			places["delete"] = true
		case e.Target() == "pods/eviction":
			places["eviction"] = true
		}
	}
	return text(slices.Sorted(maps.Keys(places))), nil
}

// carriedOutBy returns the users whose deletes and evictions of pods were carried out.
func (c *cell) carriedOutBy() ([]string, error) {
	requests, err := c.Requests()
	if err != nil {
		return nil, err
	}
	by, seen := map[string]bool{}, map[string]bool{}
	for _, e := range requests {
		if !stagetest.Removes(e) || e.Refused() || strings.HasPrefix(e.User, "system:node:") || e.Name != "" && seen[e.Name] {
			continue
		}
		if e.Name != "" && !c.wasRemoved(e.Name) {
			continue // a dry run
		}
		seen[e.Name] = true
		by[userName(e)] = true
	}
	return slices.Sorted(maps.Keys(by)), nil
}

func (c *cell) wasRemoved(name string) bool {
	c.Lock()
	defer c.Unlock()
	return slices.Contains(slices.Collect(maps.Values(c.removed)), name)
}

// userName returns the name of the component or client that sent a request.
func userName(e audit.Event) string {
	account := e.User[strings.LastIndex(e.User, ":")+1:]
	switch {
	case account == managerprocess.Account:
		return "PodOps"
	case strings.HasPrefix(e.User, "system:serviceaccount:kube-system:"):
		return account
	case strings.HasPrefix(e.User, "system:kube-"):
		return strings.TrimPrefix(e.User, "system:")
	case strings.HasPrefix(e.UserAgent, "kubectl"):
		return "kubectl"
	default:
		return "the client"
	}
}

// unguarded returns the names of the pods that were removed without operate.
func (c *cell) unguarded() []string {
	c.Lock()
	defer c.Unlock()
	var names []string
	for uid, name := range c.removed {
		if _, ok := c.guarded[uid]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// isStatus reports whether an error is a response of the API server with a code.
func isStatus(err error, code int32) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status) && status.Status().Code == code
}
