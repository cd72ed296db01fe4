package matrix_test

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/test/stage/stagetest"
)

// setup creates a workload and waits until its pods are available.
type setup func(ctx context.Context, c *cell) error

func deployment(replicas int32) setup {
	return func(ctx context.Context, c *cell) error {
		return c.create(ctx, int(replicas), &appsv1.Deployment{
			ObjectMeta: c.Meta("web"), Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: stagetest.Selected(), Template: c.Template()},
		})
	}
}

func replicaSet(replicas int32) setup {
	return func(ctx context.Context, c *cell) error {
		return c.create(ctx, int(replicas), &appsv1.ReplicaSet{
			ObjectMeta: c.Meta("web"), Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: stagetest.Selected(), Template: c.Template()},
		})
	}
}

func statefulSet(replicas int32) setup {
	return func(ctx context.Context, c *cell) error {
		return c.create(ctx, int(replicas), &appsv1.StatefulSet{
			ObjectMeta: c.Meta("web"), Spec: appsv1.StatefulSetSpec{Replicas: &replicas, Selector: stagetest.Selected(), Template: c.Template()},
		})
	}
}

func daemonSet(ctx context.Context, c *cell) error {
	nodes := &corev1.NodeList{}
	if err := c.List(ctx, nodes); err != nil {
		return err
	}
	return c.create(ctx, len(nodes.Items), &appsv1.DaemonSet{
		ObjectMeta: c.Meta("web"), Spec: appsv1.DaemonSetSpec{Selector: stagetest.Selected(), Template: c.Template()},
	})
}

func job(annotations map[string]string, available int) setup {
	return func(ctx context.Context, c *cell) error {
		one := &batchv1.Job{ObjectMeta: c.Meta("web"), Spec: batchv1.JobSpec{Template: c.Template()}}
		one.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
		one.Spec.Template.Annotations = annotations
		if available > 0 {
			return c.create(ctx, available, one)
		}
		if err := c.Create(ctx, one); err != nil {
			return err
		}
		return c.Await(ctx, "the end of the pod", func() bool {
			for _, pod := range c.Pods {
				return pod.Status.Phase == corev1.PodSucceeded
			}
			return false
		})
	}
}

func pods(count int) setup {
	return func(ctx context.Context, c *cell) error {
		for i := range count {
			template := c.Template()
			pod := &corev1.Pod{ObjectMeta: c.Meta(fmt.Sprintf("web-%d", i)), Spec: template.Spec}
			pod.Labels = template.Labels
			if err := c.Create(ctx, pod); err != nil {
				return err
			}
		}
		return c.awaitAvailable(ctx, count)
	}
}

// withBudgets adds PodDisruptionBudgets that let one pod go at a time.
func withBudgets(workload setup, count int) setup {
	return func(ctx context.Context, c *cell) error {
		if err := workload(ctx, c); err != nil {
			return err
		}
		for i := range count {
			budget := &policyv1.PodDisruptionBudget{
				ObjectMeta: c.Meta(fmt.Sprintf("budget-%d", i)),
				Spec:       policyv1.PodDisruptionBudgetSpec{Selector: stagetest.Selected(), MaxUnavailable: new(intstr.FromInt32(1))},
			}
			if err := c.Create(ctx, budget); err != nil {
				return err
			}
			err := c.awaitObject(ctx, budget, func() bool { return budget.Status.DisruptionsAllowed > 0 })
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// create creates the workload of the cell, and waits until its pods are available.
func (c *cell) create(ctx context.Context, available int, workload client.Object) error {
	if _, bare := workload.(*corev1.Pod); !bare {
		c.workload, c.desired = workload.DeepCopyObject().(client.Object), available
	}
	if err := c.Create(ctx, workload); err != nil {
		return fmt.Errorf("creating the workload: %w", err)
	}
	return c.awaitAvailable(ctx, available)
}

// awaitObject reads an object until a condition holds.
func (c *cell) awaitObject(ctx context.Context, object client.Object, holds func() bool) error {
	return c.Await(ctx, ""+object.GetName(), func() bool {
		return c.Get(ctx, client.ObjectKeyFromObject(object), object) == nil && holds()
	})
}

// act is the request that removes pods.
type act func(ctx context.Context, c *cell) error

func kubectl(args ...string) act {
	return func(ctx context.Context, c *cell) error { return c.kubectl(ctx, args...) }
}

// refused runs a request that fails.
func refused(request act) act {
	return func(ctx context.Context, c *cell) error {
		if err := request(ctx, c); err == nil {
			return fmt.Errorf("the request is not rejected")
		}
		return nil
	}
}

// then runs requests one after the other.
func then(requests ...act) act {
	return func(ctx context.Context, c *cell) error {
		for i, request := range requests {
			if err := request(ctx, c); err != nil {
				return fmt.Errorf("step %d: %w", i+1, err)
			}
		}
		return nil
	}
}

func waiting(ctx context.Context, c *cell) error { return c.awaitWaiting(ctx) }
func approve(ctx context.Context, c *cell) error {
	return c.Approve(ctx, func(*corev1.Pod) bool { return true })
}

// approveNew approves new pods until none is left.
func approveNew(ctx context.Context, c *cell) error {
	isNew := func(pod *corev1.Pod) bool { _, was := c.before[pod.UID]; return !was }
	for {
		if err := c.Approve(ctx, isNew); err != nil {
			return err
		}
		c.Lock()
		left := len(c.Pods) - len(c.before)
		c.Unlock()
		if left <= 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("approving new pods: %w", ctx.Err())
		case <-time.After(stagetest.Polling):
		}
	}
}

// onFirst runs kubectl with the name of a pod at the place of POD, and of its node at NODE.
func onFirst(args ...string) act {
	return func(ctx context.Context, c *cell) error {
		pod := c.first()
		filled := make([]string, 0, len(args))
		for _, arg := range args {
			switch arg {
			case "POD":
				arg = pod.Name
			case "NODE":
				arg = pod.Spec.NodeName
			case "CELL":
				arg = "--pod-selector=" + stagetest.SceneLabelKey + "=" + c.Namespace
			}
			filled = append(filled, arg)
		}
		return c.kubectl(ctx, filled...)
	}
}

// first returns the pod with the first name.
func (c *cell) first() *corev1.Pod {
	c.Lock()
	defer c.Unlock()
	return c.Sorted()[0]
}

// evict evicts the first pod.
func evict(uid types.UID) act {
	return func(ctx context.Context, c *cell) error {
		eviction := &policyv1.Eviction{}
		if uid != "" {
			eviction.DeleteOptions = &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
		}
		return c.SubResource("eviction").Create(ctx, c.first(), eviction)
	}
}

// deleteCollection deletes all pods of the namespace in one request.
func deleteCollection(ctx context.Context, c *cell) error {
	return c.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(c.Namespace))
}

func deleteNamespace(ctx context.Context, c *cell) error {
	return c.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace}})
}

// preempt creates a pod of high priority that needs the node port of the first pod.
func preempt(ctx context.Context, c *cell) error {
	template := c.Template()
	template.Spec.PriorityClassName = "system-cluster-critical"
	template.Spec.NodeName = ""
	template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: c.first().Spec.NodeName}
	template.Spec.Containers[0].Ports = hostPort()
	return c.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "critical", Labels: map[string]string{"app": "critical"}}, Spec: template.Spec})
}

func hostPort() []corev1.ContainerPort {
	return []corev1.ContainerPort{{ContainerPort: 8080, HostPort: 31234}}
}

// portOwner creates a bare pod with the node port that preempt needs.
func portOwner(ctx context.Context, c *cell) error {
	template := c.Template()
	template.Spec.Containers[0].Ports = hostPort()
	pod := &corev1.Pod{ObjectMeta: c.Meta("web-0"), Spec: template.Spec}
	pod.Labels = template.Labels
	return c.create(ctx, 1, pod)
}
