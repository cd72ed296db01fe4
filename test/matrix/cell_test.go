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
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/lifecycle"
	"github.com/podops-dev/podops/pkg/podstate"
	"github.com/podops-dev/podops/test/audit"
	"github.com/podops-dev/podops/test/managerprocess"
	"github.com/podops-dev/podops/test/stage"
)

// approvedKey is the label that the rule of a cell requires, if it has such a rule.
const approvedKey = "matrix.podops.dev/approved"

// timeFormat is that of changes and requests; their order is that of the text.
const timeFormat = "15:04:05.000000"

// polling is the interval at which conditions are checked.
const polling = 100 * time.Millisecond

// cell is one row of the matrix while it runs: a namespace, and the observations in it.
type cell struct {
	*cluster
	namespace string
	mark      audit.Mark
	rule      appsv1alpha1.TransitionRule

	// workload owns the pods, with so many of them desired; nil for bare pods.
	workload client.Object
	desired  int

	mu sync.Mutex

	// pods that exist; available ones count as rules count them.
	pods map[types.UID]*corev1.Pod

	// removed are the pods that became terminating or disappeared, and guarded the pods among them that a
	// rule had permitted to go, and whose traffic was off, or that were not controlled; by name.
	guarded, removed map[types.UID]string

	// least is the smallest number of available pods since measure.
	measured bool
	least    int

	// log has the changes of pods as text, which a failed row prints.
	log []string

	// before are the pods at the time of the request.
	before map[types.UID]string

	// kept is true once the deletion of a pod has begun although its ReplicaSet had no pod beyond spec.replicas: admission
	// keeps that number.
	kept bool
}

// cluster is a control plane with a manager, which the cells share.
type cluster struct {
	*stage.Stage
	client.WithWatch
	audit *audit.Log
}

// newCell creates a namespace with one PodTransitionRule and observes its pods until ctx ends.
func newCell(ctx context.Context, w *cluster, rule appsv1alpha1.TransitionRule) (*cell, error) {
	c := &cell{cluster: w, rule: rule, pods: map[types.UID]*corev1.Pod{}, guarded: map[types.UID]string{}, removed: map[types.UID]string{}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "matrix-"}}
	if err := w.Create(ctx, namespace); err != nil {
		return nil, fmt.Errorf("creating the namespace: %w", err)
	}
	c.namespace = namespace.Name
	var err error
	if c.mark, err = w.audit.Mark(); err != nil {
		return nil, err
	}
	if err := c.observe(ctx); err != nil {
		return nil, err
	}
	return c, c.Create(ctx, &appsv1alpha1.PodTransitionRule{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "web"},
		Spec: appsv1alpha1.PodTransitionRuleSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Rules: []appsv1alpha1.TransitionRule{rule},
		},
	})
}

func (c *cell) observe(ctx context.Context) error {
	pods, err := c.Watch(ctx, &corev1.PodList{}, client.InNamespace(c.namespace))
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	go func() {
		for event := range pods.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok {
				c.podChanged(event.Type, pod)
				c.noteKept(ctx, pod)
			}
		}
	}()
	return nil
}

func (c *cell) podChanged(kind watch.EventType, pod *corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.pods[pod.UID]
	c.log = append(c.log, fmt.Sprintf("%s %s %s", time.Now().Format(timeFormat), kind, describe(pod)))
	if pod.DeletionTimestamp != nil || kind == watch.Deleted {
		if _, known := c.removed[pod.UID]; !known {
			c.removed[pod.UID] = pod.Name
			if before != nil && (isGuarded(before) || !appsv1alpha1.IsControlled(before.Labels)) {
				c.guarded[pod.UID] = pod.Name
			}
		}
	}
	if kind == watch.Deleted {
		delete(c.pods, pod.UID)
	} else {
		c.pods[pod.UID] = pod
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
	c.mu.Lock()
	defer c.mu.Unlock()
	count := 0
	for _, other := range c.pods {
		if metav1.IsControlledBy(other, set) && other.DeletionTimestamp == nil {
			count++
		}
	}
	c.kept = c.kept || count <= int(*set.Spec.Replicas)
}

// isGuarded reports whether the rules have permitted an operation on the pod, and its traffic is off.
func isGuarded(pod *corev1.Pod) bool {
	facts := lifecycle.FactsOf(pod)
	return facts.Permitted() && !facts.Ready
}

// available counts the available pods. The caller holds the lock.
func (c *cell) available() int {
	count := 0
	for _, pod := range c.pods {
		if isAvailable(pod) {
			count++
		}
	}
	return count
}

// isAvailable reports whether a pod is available. One without the control label is while it is Ready.
func isAvailable(pod *corev1.Pod) bool {
	if appsv1alpha1.IsControlled(pod.Labels) {
		return podstate.Available(pod)
	}
	return pod.DeletionTimestamp == nil && lifecycle.FactsOf(pod).Ready
}

// measure begins to measure the smallest number of available pods, at the request.
func (c *cell) measure(before map[types.UID]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.measured, c.least, c.before = true, c.available(), before
}

// uids returns the names of the pods by UID.
func (c *cell) uids() map[types.UID]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := map[types.UID]string{}
	for uid, pod := range c.pods {
		names[uid] = pod.Name
	}
	return names
}

// await waits until a condition holds.
func (c *cell) await(ctx context.Context, what string, holds func() bool) error {
	for {
		c.mu.Lock()
		ok := holds()
		c.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w\n%s", what, ctx.Err(), c.describe())
		case <-time.After(polling):
		}
	}
}

// describe returns the pods as text.
func (c *cell) describe() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var text strings.Builder
	for _, pod := range c.pods {
		text.WriteString(describe(pod) + "\n")
	}
	return text.String()
}

func describe(pod *corev1.Pod) string {
	return fmt.Sprintf("%s/%s available=%t ready=%t phase=%s node=%s deletion=%v labels=%v annotations=%v finalizers=%v", pod.Namespace, pod.Name,
		podstate.Available(pod), lifecycle.FactsOf(pod).Ready, pod.Status.Phase, pod.Spec.NodeName, pod.DeletionTimestamp, pod.Labels, pod.Annotations, pod.Finalizers)
}

// story returns the changes of the pods, and the requests for pods and their owners.
func (c *cell) story() string {
	requests, err := c.requests()
	if err != nil {
		return err.Error()
	}
	c.mu.Lock()
	lines := slices.Clone(c.log)
	c.mu.Unlock()
	for _, e := range requests {
		if strings.HasPrefix(e.Resource, "events") {
			continue
		}
		lines = append(lines, fmt.Sprintf("%s %s %s %s %s %d %s", e.Time.Format(timeFormat), userName(e), e.Verb, e.Target(), e.Name, e.Code, e.Message))
	}
	slices.Sort(lines) // by time
	return strings.Join(lines, "\n")
}

// awaitAvailable waits until exactly so many pods exist, and all of them are available and in no lifecycle.
func (c *cell) awaitAvailable(ctx context.Context, want int) error {
	return c.await(ctx, fmt.Sprintf("waiting for %d pods", want), func() bool { return c.serve(want) })
}

// serve reports whether exactly so many pods exist, and all of them are available, without a trace of a
// lifecycle. The caller holds the lock.
func (c *cell) serve(want int) bool {
	settled := len(c.pods) == want && c.available() == want
	for _, pod := range c.pods {
		settled = settled && len(traces(pod)) == 0
	}
	return settled
}

// isWaiting reports whether a lifecycle has begun on the pod.
func isWaiting(pod *corev1.Pod) bool {
	for key := range pod.Labels {
		if strings.HasPrefix(key, appsv1alpha1.OperatingLabelPrefix+"/") {
			return true
		}
	}
	return false
}

// waiting returns the pods that are in a lifecycle, or that are in none.
func (c *cell) waiting(waits bool) (pods []*corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pod := range c.pods {
		if isWaiting(pod) == waits {
			pods = append(pods, pod.DeepCopy())
		}
	}
	return pods
}

// awaitWaiting waits until a pod is in a lifecycle.
func (c *cell) awaitWaiting(ctx context.Context) error {
	return c.await(ctx, "waiting for a lifecycle", func() bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(c.pods)), isWaiting)
	})
}

// patch sends a merge patch.
func (c *cell) patch(ctx context.Context, object client.Object, patch string) error {
	return c.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(patch)))
}

// approve sets the label that the rule requires on every pod, or on the pods that are not before.
func (c *cell) approve(ctx context.Context, onlyNew bool) error {
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.InNamespace(c.namespace)); err != nil {
		return err
	}
	for i := range pods.Items {
		_, was := c.before[pods.Items[i].UID]
		if was && onlyNew || pods.Items[i].Labels[approvedKey] != "" {
			continue
		}
		if err := client.IgnoreNotFound(c.patch(ctx, &pods.Items[i], `{"metadata":{"labels":{"`+approvedKey+`":"true"}}}`)); err != nil {
			return err
		}
	}
	return nil
}

// kubectl runs kubectl in the namespace of the cell.
func (c *cell) kubectl(ctx context.Context, args ...string) error {
	return c.Kubectl(ctx, append([]string{"--namespace", c.namespace}, args...)...)
}

// requests returns the audited requests of the cell.
func (c *cell) requests() (audit.Events, error) {
	events, err := c.audit.Since(c.mark)
	if err != nil {
		return nil, err
	}
	return events.Where(func(e audit.Event) bool { return e.Namespace == c.namespace }), nil
}

// heldAt returns where requests were held: at the ReplicaSet, at the delete or at the eviction.
func (c *cell) heldAt() (string, error) {
	requests, err := c.requests()
	if err != nil {
		return "", err
	}
	places := map[string]bool{}
	c.mu.Lock()
	if c.kept {
		places["ReplicaSet"] = true
	}
	c.mu.Unlock()
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
	requests, err := c.requests()
	if err != nil {
		return nil, err
	}
	by, seen := map[string]bool{}, map[string]bool{}
	for _, e := range requests {
		removes := e.Target() == "pods" && (e.Verb == "delete" || e.Verb == "deletecollection") || e.Target() == "pods/eviction" && e.Verb == "create"
		if !removes || e.Refused() || strings.HasPrefix(e.User, "system:node:") || e.Name != "" && seen[e.Name] {
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
	c.mu.Lock()
	defer c.mu.Unlock()
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
	c.mu.Lock()
	defer c.mu.Unlock()
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
