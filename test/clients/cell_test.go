package clients_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/audit"
	"github.com/podops-dev/podops/test/stage/stagetest"
)

// cell is a story while it is played: a namespace, and the observations in it.
type cell struct {
	*stagetest.Scene
	cluster    *cluster
	controlled bool

	// before are the nodes of the pods at the time of the requests, by UID.
	before map[types.UID]string

	// emptied is the node of the first pod, which stories of nodes empty.
	emptied string

	// gone are the pods that became terminating or disappeared since, in order.
	gone []*corev1.Pod

	// least is the smallest number of pods that served since.
	least int
}

// newCell creates a namespace with a PodTransitionRule, if there is a rule, and follows its pods until ctx ends.
func newCell(ctx context.Context, w *cluster, s story, controlled bool) (*cell, error) {
	scene, err := w.NewScene(ctx, "clients")
	if err != nil {
		return nil, err
	}
	c := &cell{Scene: scene, cluster: w, controlled: controlled}
	if err := c.Follow(ctx, c.changed); err != nil || s.rule.Name == "" {
		return c, err
	}
	rule := c.Rule(s.rule)
	if s.maxHold > 0 {
		rule.Spec.MaxHold, rule.Spec.OnMaxHold = &metav1.Duration{Duration: s.maxHold}, appsv1alpha1.HoldRelease
	}
	return c, c.Create(ctx, rule)
}

func (c *cell) changed(kind watch.EventType, _, pod *corev1.Pod) {
	leaves := pod.DeletionTimestamp != nil || kind == watch.Deleted
	known := slices.ContainsFunc(c.gone, func(other *corev1.Pod) bool { return other.UID == pod.UID })
	if leaves && !known && c.before != nil {
		c.gone = append(c.gone, pod)
	}
	c.least = min(c.least, c.serving())
}

// serving counts the pods that serve. The caller holds the lock.
func (c *cell) serving() int { return c.Count(stagetest.Serves) }

// measure begins to count, right before the requests.
func (c *cell) measure() {
	c.Lock()
	defer c.Unlock()
	c.before, c.gone, c.least = map[types.UID]string{}, nil, c.serving()
	for uid, pod := range c.Pods {
		c.before[uid] = pod.Spec.NodeName
	}
	c.emptied = c.Sorted()[0].Spec.NodeName
}

// awaitServing waits until exactly so many pods exist, which all serve and are in no lifecycle.
func (c *cell) awaitServing(ctx context.Context, count int) error {
	return c.Await(ctx, fmt.Sprintf("%d pods that serve", count), func() bool {
		return len(c.Pods) == count && c.serving() == count && !slices.ContainsFunc(c.Sorted(), stagetest.IsWaiting)
	})
}

// awaitLeaving waits until the controller has requested the removal of pods, and has had the time to name others.
func (c *cell) awaitLeaving(ctx context.Context) error {
	err := c.Await(ctx, "a pod that leaves", func() bool {
		left, waiting := c.old()
		return waiting > 0 || left < len(c.before)
	})
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(calm):
		return nil
	}
}

// list returns copies of the pods by name.
func (c *cell) list() []*corev1.Pod {
	c.Lock()
	defer c.Unlock()
	pods := c.Sorted()
	for i, pod := range pods {
		pods[i] = pod.DeepCopy()
	}
	return pods
}

// onNode returns how many pods were on a node before the requests.
func (c *cell) onNode(name string) int {
	c.Lock()
	defer c.Unlock()
	count := 0
	for _, node := range c.before {
		if node == name {
			count++
		}
	}
	return count
}

// removals returns the audited deletes and evictions of pods in the cell, without those of kubelets.
func (c *cell) removals() (audit.Events, error) {
	return c.Requests(stagetest.Removes, func(e audit.Event) bool { return !strings.HasPrefix(e.User, "system:node:") })
}

// template returns the pod template of every workload.
func (c *cell) template() corev1.PodTemplateSpec {
	template := c.Template()
	if !c.controlled {
		delete(template.Labels, appsv1alpha1.ControlLabelKey)
	}
	return template
}

// setup creates a workload of so many pods.
type setup func(ctx context.Context, c *cell, pods int32) error

func deployment(ctx context.Context, c *cell, pods int32) error {
	return c.Create(ctx, &appsv1.Deployment{
		ObjectMeta: c.Meta("web"), Spec: appsv1.DeploymentSpec{Replicas: &pods, Selector: stagetest.Selected(), Template: c.template()},
	})
}

func statefulSet(ctx context.Context, c *cell, pods int32) error {
	return c.Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: c.Meta("web"), Spec: appsv1.StatefulSetSpec{Replicas: &pods, Selector: stagetest.Selected(), Template: c.template()},
	})
}
