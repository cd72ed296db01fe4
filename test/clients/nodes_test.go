package clients_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/test/stage/stagetest"
)

// nodes are the stories of programs that empty a node.
func nodes() []story {
	ofNode := func(c *cell) int { return c.onNode(c.node()) }
	emptied := end{gone: ofNode, reports: "exit code 0", text: "each pod of the node is evicted once"}
	return []story{
		{client: "kubectl", does: "drain", rule: quarter(), limits: "25 %", workload: statefulSet, pods: 3, act: drain("--timeout=60s"),
			without: emptied, with: emptied.serving(2)},
		{client: "kubectl", does: "drain of a large node", rule: quarter(), limits: "25 %", workload: deployment, pods: 160, act: drain("--timeout=100s"), alone: true,
			without: emptied, with: emptied.serving(120)},
		{client: "kubectl", does: "drain with a time-out, then all pods are approved", rule: stagetest.Approved(), limits: "approval", workload: deployment, pods: 4,
			act:     then(drain("--timeout=4s"), approve),
			without: emptied, with: end{gone: exactly(0), reports: "exit code 1", text: "no pod is evicted, then or later"}},
		{client: "kubectl", does: "delete of 3 pods", limits: "no rule", workload: deployment, pods: 4, act: deletePods(3),
			without: end{gone: exactly(3), reports: "exit code 0", text: "all at once"},
			with:    end{gone: exactly(3), reports: "exit code 0", text: "one after the other, each off traffic first"}},
		{client: "cluster autoscaler (imitated)", does: "removes a node", rule: stagetest.OneAtATime(), limits: "one at a time", workload: deployment, pods: 8, act: scaleDown(time.Minute),
			without: emptied.reporting("node empty"), with: emptied.reporting("node empty").serving(7)},
		{client: "cluster autoscaler (imitated)", does: "gives a node up, then all pods are approved", rule: stagetest.Approved(), limits: "approval", workload: deployment, pods: 4,
			act:     then(scaleDown(8*time.Second), approve),
			without: emptied.reporting("node empty"), with: end{gone: exactly(0), reports: "gave up", text: "no pod is evicted, then or later"}},
		{client: "Karpenter (imitated)", does: "`terminationGracePeriod` of 15 s", rule: stagetest.Approved(), limits: "approval, `maxHold: 5s`, `Release`", maxHold: 5 * time.Second,
			workload: deployment, pods: 4, act: terminate(15*time.Second, time.Minute),
			without: emptied.reporting("node empty"), with: emptied.reporting("node empty")},
		{client: "Karpenter (imitated)", does: "`terminationGracePeriod` of 5 s", rule: stagetest.Approved(), limits: "approval", workload: deployment, pods: 4,
			act:     then(terminate(5*time.Second, 20*time.Second), approve),
			without: emptied.reporting("node empty"), with: end{gone: exactly(0), reports: "node waits", text: "the node waits; no pod goes later"}},
		{client: "VPA updater (imitated)", does: "evicts until 3 of 6 evictions have passed", limits: "no rule", workload: deployment, pods: 6, act: updatePods(3),
			without: end{gone: exactly(3), reports: "3 evicted", text: "3 go"}, with: end{gone: exactly(3), reports: "3 evicted", text: "3 go"}},
		{client: "VPA updater (imitated)", does: "evicts until 3 of 6 evictions have passed", rule: stagetest.Approved(), limits: "approval", workload: deployment, pods: 6,
			act:     then(updatePods(3), approve),
			without: end{gone: exactly(3), reports: "3 evicted", text: "3 go"}, with: end{gone: exactly(0), reports: "0 evicted", text: "no pod goes, then or later"}},
	}
}

// serving returns the end in which so many pods serve at any time.
func (e end) serving(least int) end {
	e.least = least
	e.text = fmt.Sprintf("%s; at least %d serve", e.text, least)
	return e
}

// reporting returns the end of a program that reports something else.
func (e end) reporting(what string) end {
	e.reports = what
	return e
}

// act sends requests, and returns what their program reports.
type act = func(ctx context.Context, c *cell) (string, error)

// then changes something once the program has ended.
func then(first act, next func(ctx context.Context, c *cell) error) act {
	return func(ctx context.Context, c *cell) (string, error) {
		reports, err := first(ctx, c)
		if err != nil {
			return reports, err
		}
		return reports, next(ctx, c)
	}
}

func approve(ctx context.Context, c *cell) error {
	return c.Approve(ctx, func(*corev1.Pod) bool { return true })
}

// node returns the node that is emptied: that of the pod with the first name before the requests.
func (c *cell) node() string {
	c.Lock()
	defer c.Unlock()
	return c.emptied
}

// kubectl runs kubectl, and returns its exit code.
func (c *cell) kubectl(ctx context.Context, args ...string) (string, error) {
	output, code, err := run(ctx, c.Bin+"/kubectl", append([]string{"--kubeconfig", c.Kubeconfig(), "--namespace", c.Namespace}, args...)...)
	if err != nil {
		return "", err
	}
	c.Note(output)
	return fmt.Sprintf("exit code %d", code), nil
}

// drain drains the node, and uncordons it.
func drain(flags ...string) act {
	return func(ctx context.Context, c *cell) (string, error) {
		reports, err := c.kubectl(ctx, append([]string{"drain", c.node(), "--pod-selector=" + stagetest.SceneLabelKey + "=" + c.Namespace}, flags...)...)
		if err != nil {
			return "", err
		}
		_, err = c.kubectl(ctx, "uncordon", c.node())
		return reports, err
	}
}

// deletePods deletes pods in one command.
func deletePods(count int) act {
	return func(ctx context.Context, c *cell) (string, error) {
		args := []string{"delete", "pod", "--wait=false"}
		for _, pod := range c.list()[:count] {
			args = append(args, pod.Name)
		}
		return c.kubectl(ctx, args...)
	}
}

// remaining returns the pods of the beginning that are on the node that is emptied.
func (c *cell) remaining() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range c.list() {
		c.Lock()
		node, was := c.before[pod.UID]
		c.Unlock()
		if was && node == c.node() {
			pods = append(pods, pod)
		}
	}
	return pods
}

// onNodeNow counts the pods of the beginning that are on the node that is emptied. The caller holds the lock.
func (c *cell) onNodeNow() int {
	count := 0
	for uid, node := range c.before {
		if _, here := c.Pods[uid]; here && node == c.emptied {
			count++
		}
	}
	return count
}

// evict evicts a pod. It returns false if that is refused.
func evict(ctx context.Context, as client.Client, pod *corev1.Pod) (bool, error) {
	err := as.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}})
	if apierrors.IsTooManyRequests(err) {
		return false, nil
	}
	return err == nil, client.IgnoreNotFound(err)
}

// scaleDown acts as the cluster autoscaler by its documentation: it taints the node, and evicts all pods, each again after a pause while it is
// refused (10 s there, 2 s here). It removes the taint if pods are left after max-pod-eviction-time.
func scaleDown(maxPodEvictionTime time.Duration) act {
	const retry = 2 * time.Second
	return func(ctx context.Context, c *cell) (string, error) {
		as, err := c.As("system:serviceaccount:kube-system:cluster-autoscaler")
		if err != nil {
			return "", err
		}
		untaint, err := c.taint(ctx, "ToBeDeletedByClusterAutoscaler")
		if err != nil {
			return "", err
		}
		defer untaint()
		bounded, cancel := context.WithTimeout(ctx, maxPodEvictionTime)
		defer cancel()
		results := make(chan error)
		pods := c.remaining()
		for _, pod := range pods {
			go func() { results <- evictRepeatedly(bounded, as, pod, retry) }()
		}
		var failed []error
		for range pods {
			if err := <-results; err != nil {
				failed = append(failed, err)
			}
		}
		if err := errors.Join(failed...); err != nil {
			c.Note(err.Error())
			return "gave up", nil
		}
		return "node empty", c.Await(ctx, "an empty node", func() bool { return c.onNodeNow() == 0 })
	}
}

// evictRepeatedly evicts a pod until that is accepted.
func evictRepeatedly(ctx context.Context, as client.Client, pod *corev1.Pod, pause time.Duration) error {
	for {
		accepted, err := evict(ctx, as, pod)
		if accepted || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("evicting pod %s: %w", pod.Name, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// terminate acts as Karpenter by its documentation: it taints the node, evicts its pods again and again, and once the
// terminationGracePeriod has passed deletes the pods that are left, also again and again, with a grace period of at least 1 s. It knows no end, so
// the story ends it after a time.
func terminate(terminationGracePeriod, patience time.Duration) act {
	const pause = time.Second
	return func(ctx context.Context, c *cell) (string, error) {
		as, err := c.As("system:serviceaccount:karpenter:karpenter")
		if err != nil {
			return "", err
		}
		untaint, err := c.taint(ctx, "karpenter.sh/disrupted")
		if err != nil {
			return "", err
		}
		defer untaint()
		began := time.Now()
		for time.Since(began) < patience {
			pods := c.remaining()
			if len(pods) == 0 {
				return "node empty", nil
			}
			for _, pod := range pods {
				if time.Since(began) < terminationGracePeriod {
					_, err = evict(ctx, as, pod)
				} else {
					err = as.Delete(ctx, pod, client.GracePeriodSeconds(1), client.Preconditions{UID: &pod.UID})
				}
				if err != nil && !apierrors.IsTooManyRequests(err) && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
					return "", err
				}
			}
			select {
			case <-ctx.Done():
				return "", ctx.Err()
			case <-time.After(pause):
			}
		}
		return "node waits", nil
	}
}

// updatePods acts as the updater of the VerticalPodAutoscaler by its documentation: in one loop it evicts pods until its tolerance is used
// up, and goes on with the next pod when an eviction fails.
func updatePods(tolerated int) act {
	return func(ctx context.Context, c *cell) (string, error) {
		as, err := c.As("system:serviceaccount:kube-system:vpa-updater")
		if err != nil {
			return "", err
		}
		evicted := 0
		for _, pod := range c.list() {
			accepted, err := evict(ctx, as, pod)
			if err != nil {
				return "", err
			}
			if accepted {
				evicted++
			}
			if evicted == tolerated {
				break
			}
		}
		return fmt.Sprintf("%d evicted", evicted), nil
	}
}

// taint keeps new pods from the node. untaint removes the taint.
func (c *cell) taint(ctx context.Context, key string) (untaint func(), err error) {
	if err := c.Kubectl(ctx, "taint", "node", c.node(), key+"=:NoSchedule"); err != nil {
		return nil, err
	}
	return func() {
		if err := c.Kubectl(context.WithoutCancel(ctx), "taint", "node", c.node(), key+"-"); err != nil {
			c.Note(err.Error())
		}
	}, nil
}
