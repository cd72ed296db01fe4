package clients_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/podops-dev/podops/test/stage/stagetest"
)

// deschedules are the stories of the descheduler. It evicts pods that are older than a second.
func deschedules() []story {
	evicts := func(pods int) end {
		return end{gone: exactly(pods), reports: fmt.Sprintf("%d evicted", pods), text: fmt.Sprintf("%d go, and it reports %d", pods, pods)}
	}
	perNode := end{gone: func(c *cell) int { return c.usedNodes() }, reports: "one evicted a node", text: "one a node goes, and it reports the same"}
	return []story{
		{client: "descheduler", does: "PodLifeTime, `maxNoOfPodsToEvictTotal: 1`", needs: "descheduler", limits: "no rule", workload: deployment, pods: 6,
			act: deschedule("maxNoOfPodsToEvictTotal: 1"), without: evicts(1), with: evicts(1).serving(5)},
		{client: "descheduler", does: "PodLifeTime, `maxNoOfPodsToEvictTotal: 2`", needs: "descheduler", rule: quarter(), limits: "25 %", workload: deployment, pods: 12,
			act: deschedule("maxNoOfPodsToEvictTotal: 2"), without: evicts(2), with: evicts(2).serving(9)},
		{client: "descheduler", does: "PodLifeTime, `maxNoOfPodsToEvictPerNode: 1`", needs: "descheduler", rule: stagetest.Unavailable(intstr.FromInt32(4)), limits: "4 at a time", workload: deployment, pods: 12,
			act: deschedule("maxNoOfPodsToEvictPerNode: 1"), without: perNode, with: perNode.serving(8)},
		{client: "descheduler", does: "PodLifeTime, `maxNoOfPodsToEvictTotal: 1`, then all pods are approved", needs: "descheduler", rule: stagetest.Approved(), limits: "approval",
			workload: deployment, pods: 6, act: then(deschedule("maxNoOfPodsToEvictTotal: 1"), approve),
			without: evicts(1), with: end{gone: exactly(0), reports: "0 evicted", text: "no pod goes, then or later"}},
	}
}

// usedNodes returns on how many nodes pods were before the requests.
func (c *cell) usedNodes() int {
	c.Lock()
	defer c.Unlock()
	used := map[string]bool{}
	for _, node := range c.before {
		used[node] = true
	}
	return len(used)
}

// isOld reports whether every pod is older than PodLifeTime allows. The caller holds the lock.
func (c *cell) isOld() bool {
	return !slices.ContainsFunc(c.Sorted(), func(pod *corev1.Pod) bool { return time.Since(pod.CreationTimestamp.Time) < 3*time.Second })
}

// policy is a policy of the descheduler for the pods of one namespace.
const policy = `apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
%s
profiles:
- name: clients
  pluginConfig:
  - name: DefaultEvictor
    args: {nodeFit: false}
  - name: PodLifeTime
    args:
      maxPodLifeTimeSeconds: 1
      namespaces: {include: [%s]}
  plugins:
    deschedule: {enabled: [PodLifeTime]}
`

// totalEvicted is how the descheduler logs how many pods it has evicted.
var totalEvicted = regexp.MustCompile(`totalEvicted=(\d+)`)

// deschedule runs the descheduler once, with a limit.
func deschedule(limit string) act {
	return func(ctx context.Context, c *cell) (string, error) {
		kubeconfig, err := c.cluster.account(ctx, types.NamespacedName{Namespace: "kube-system", Name: "descheduler"})
		if err != nil {
			return "", err
		}
		dir, err := os.MkdirTemp(c.Dir(), "descheduler-")
		if err != nil {
			return "", err
		}
		file := filepath.Join(dir, "policy.yaml")
		if err := os.WriteFile(file, fmt.Appendf(nil, policy, limit, c.Namespace), 0o644); err != nil {
			return "", err
		}
		if err := c.Await(ctx, "pods that are old enough", c.isOld); err != nil {
			return "", err
		}
		port, err := freePort()
		if err != nil {
			return "", err
		}
		path, _ := c.cluster.program("descheduler")
		output, code, err := run(ctx, path, "--kubeconfig", kubeconfig, "--policy-config-file", file, "--v", "3",
			"--bind-address", "127.0.0.1", "--secure-port", port, "--cert-dir", dir)
		c.Note(output)
		if err != nil {
			return "", err
		}
		found := totalEvicted.FindStringSubmatch(output)
		if code != 0 || found == nil {
			return "", fmt.Errorf("the descheduler ends with %d:\n%s", code, output)
		}
		if limit == "maxNoOfPodsToEvictPerNode: 1" && found[1] == fmt.Sprint(c.usedNodes()) {
			return "one evicted a node", nil
		}
		return found[1] + " evicted", nil
	}
}
