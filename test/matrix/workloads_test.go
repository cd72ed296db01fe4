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

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// oneAtATime lets one pod be unavailable at a time.
func oneAtATime() appsv1alpha1.TransitionRule {
	return appsv1alpha1.TransitionRule{Name: "one", AvailablePolicy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: new(intstr.FromInt32(1))}}
}

// approved withholds pods until approve.
func approved() appsv1alpha1.TransitionRule {
	return appsv1alpha1.TransitionRule{Name: "approved", LabelCheck: &appsv1alpha1.LabelCheck{
		Requires: &metav1.LabelSelector{MatchLabels: map[string]string{approvedKey: "true"}},
	}}
}

var selected = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}

// template returns the pod template of every workload. tests.podops.dev/cell selects the pods for drains.
func (c *cell) template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
			"app": "web", "matrix.podops.dev/cell": c.namespace, appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue,
		}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(1)),
			Containers:                    []corev1.Container{{Name: "web", Image: "registry.example.com/web:v1"}},
		},
	}
}

func (c *cell) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: c.namespace, Name: name}
}

// setup creates a workload and waits until its pods are available.
type setup func(ctx context.Context, c *cell) error

func deployment(replicas int32) setup {
	return func(ctx context.Context, c *cell) error {
		return c.create(ctx, int(replicas), &appsv1.Deployment{
			ObjectMeta: c.meta("web"), Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: selected, Template: c.template()},
		})
	}
}

func replicaSet(replicas int32) setup {
	return func(ctx context.Context, c *cell) error {
		return c.create(ctx, int(replicas), &appsv1.ReplicaSet{
			ObjectMeta: c.meta("web"), Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: selected, Template: c.template()},
		})
	}
}

func statefulSet(replicas int32) setup {
	return func(ctx context.Context, c *cell) error {
		return c.create(ctx, int(replicas), &appsv1.StatefulSet{
			ObjectMeta: c.meta("web"), Spec: appsv1.StatefulSetSpec{Replicas: &replicas, Selector: selected, Template: c.template()},
		})
	}
}

func daemonSet(ctx context.Context, c *cell) error {
	nodes := &corev1.NodeList{}
	if err := c.List(ctx, nodes); err != nil {
		return err
	}
	return c.create(ctx, len(nodes.Items), &appsv1.DaemonSet{
		ObjectMeta: c.meta("web"), Spec: appsv1.DaemonSetSpec{Selector: selected, Template: c.template()},
	})
}

func job(annotations map[string]string, available int) setup {
	return func(ctx context.Context, c *cell) error {
		one := &batchv1.Job{ObjectMeta: c.meta("web"), Spec: batchv1.JobSpec{Template: c.template()}}
		one.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
		one.Spec.Template.Annotations = annotations
		if available > 0 {
			return c.create(ctx, available, one)
		}
		if err := c.Create(ctx, one); err != nil {
			return err
		}
		return c.await(ctx, "waiting for the end of the pod", func() bool {
			for _, pod := range c.pods {
				return pod.Status.Phase == corev1.PodSucceeded
			}
			return false
		})
	}
}

func pods(count int) setup {
	return func(ctx context.Context, c *cell) error {
		for i := range count {
			template := c.template()
			pod := &corev1.Pod{ObjectMeta: c.meta(fmt.Sprintf("web-%d", i)), Spec: template.Spec}
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
				ObjectMeta: c.meta(fmt.Sprintf("budget-%d", i)),
				Spec:       policyv1.PodDisruptionBudgetSpec{Selector: selected, MaxUnavailable: new(intstr.FromInt32(1))},
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
	return c.await(ctx, "waiting for "+object.GetName(), func() bool {
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
func approve(ctx context.Context, c *cell) error { return c.approve(ctx, false) }

// approveNew approves new pods until none is left.
func approveNew(ctx context.Context, c *cell) error {
	for {
		if err := c.approve(ctx, true); err != nil {
			return err
		}
		c.mu.Lock()
		left := len(c.pods) - len(c.before)
		c.mu.Unlock()
		if left <= 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("approving new pods: %w\n%s", ctx.Err(), c.describe())
		case <-time.After(polling):
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
				arg = "--pod-selector=matrix.podops.dev/cell=" + c.namespace
			}
			filled = append(filled, arg)
		}
		return c.kubectl(ctx, filled...)
	}
}

// first returns the pod with the first name.
func (c *cell) first() *corev1.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	var first *corev1.Pod
	for _, pod := range c.pods {
		if first == nil || pod.Name < first.Name {
			first = pod
		}
	}
	return first
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
	return c.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(c.namespace))
}

func deleteNamespace(ctx context.Context, c *cell) error {
	return c.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}})
}

// preempt creates a pod of high priority that needs the node port of the first pod.
func preempt(ctx context.Context, c *cell) error {
	template := c.template()
	template.Spec.PriorityClassName = "system-cluster-critical"
	template.Spec.NodeName = ""
	template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: c.first().Spec.NodeName}
	template.Spec.Containers[0].Ports = hostPort()
	return c.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "critical", Labels: map[string]string{"app": "critical"}}, Spec: template.Spec})
}

func hostPort() []corev1.ContainerPort {
	return []corev1.ContainerPort{{ContainerPort: 8080, HostPort: 31234}}
}

// portOwner creates a bare pod with the node port that preempt needs.
func portOwner(ctx context.Context, c *cell) error {
	template := c.template()
	template.Spec.Containers[0].Ports = hostPort()
	pod := &corev1.Pod{ObjectMeta: c.meta("web-0"), Spec: template.Spec}
	pod.Labels = template.Labels
	return c.create(ctx, 1, pod)
}
