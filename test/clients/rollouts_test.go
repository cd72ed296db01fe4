package clients_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/managerprocess"
	"github.com/podops-dev/podops/test/stage/stagetest"
)

// rollouts are the stories of Argo Rollouts.
func rollouts() []story {
	replaced := end{gone: exactly(4), text: "4 pods are replaced"}
	return []story{
		{client: "Argo Rollouts", does: "canary with `maxUnavailable: 50%`", needs: argo, rule: stagetest.OneAtATime(), limits: "one at a time",
			workload: rollout("canary: {maxUnavailable: 50%, maxSurge: 0}"), pods: 8, act: then(nothing, updateRollout),
			without: end{gone: exactly(8), least: 4, text: "all pods are replaced; at least 4 serve"}, with: end{gone: exactly(8), least: 7, text: "all pods are replaced; at least 7 serve"}},
		{client: "Argo Rollouts", does: "blueGreen, whose old pods leave", needs: argo, rule: stagetest.OneAtATime(), limits: "one at a time",
			workload: rollout(blueGreen), pods: 4, act: then(nothing, updateRollout),
			without: replaced.serving(4), with: replaced.serving(4)},
		{client: "Argo Rollouts", does: "blueGreen, undone once the old pods leave, then all pods are approved", needs: argo, rule: stagetest.Approved(), limits: "approval",
			workload: rollout(blueGreen), pods: 4, act: then(nothing, undoRollout),
			without: end{gone: exactly(8), least: 4, text: "the old pods are gone, and 4 others start"},
			with:    end{gone: exactly(4), keeps: true, least: 4, text: "the old pods serve again, and the new ones go"}},
		{client: "Argo Rollouts", does: "`restartAt`, then all pods are approved", needs: argo, rule: stagetest.Approved(), limits: "approval",
			workload: rollout("canary: {maxUnavailable: 1, maxSurge: 0}"), pods: 4, act: then(nothing, restartRollout),
			without: replaced.serving(3), with: replaced.serving(3)},
	}
}

// argo is the program of Argo Rollouts.
const argo = "argo-rollouts"

const blueGreen = "blueGreen: {activeService: active, scaleDownDelaySeconds: 2}"

func nothing(context.Context, *cell) (string, error) { return "", nil }

// startRollouts starts the controller of Argo Rollouts, with the CustomResourceDefinitions of its module.
func startRollouts(t *testing.T, w *cluster) {
	t.Helper()
	path, built := w.program(argo)
	if !built {
		return
	}
	dir := moduleDir(t, argo, "github.com/argoproj/argo-rollouts")
	if err := w.Kubectl(t.Context(), "apply", "--server-side", "-k", filepath.Join(dir, "manifests", "crds")); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := w.account(t.Context(), types.NamespacedName{Namespace: argo, Name: argo})
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	health, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	start(t, w, argo, path, "--kubeconfig", kubeconfig, "--leader-elect=false", "--qps", "500", "--burst", "500", "--metricsPort", metrics, "--healthzPort", health)
}

// moduleDir returns the folder of a module that a program of another project is built from.
func moduleDir(t *testing.T, name, module string) string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), "go", "list", "-C", name, "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatalf("finding the module %s: %v", module, err)
	}
	return strings.TrimSpace(string(output))
}

// start runs a controller until the test ends.
func start(t *testing.T, w *cluster, name string, command ...string) {
	t.Helper()
	process, err := managerprocess.Start(managerprocess.Options{Command: command, Log: filepath.Join(w.Dir(), name+".log")})
	if err != nil {
		t.Fatalf("starting %s: %v", name, err)
	}
	t.Cleanup(func() {
		if process.HasEnded() {
			t.Errorf("%s has ended: %v", name, process.Err())
		}
		process.Kill()
	})
}

// rollout creates a Rollout with a strategy, and the Service that it may need.
func rollout(strategy string) setup {
	return func(ctx context.Context, c *cell, pods int32) error {
		label := ""
		if c.controlled {
			label = fmt.Sprintf("%s: %q", appsv1alpha1.ControlLabelKey, appsv1alpha1.ControlLabelValue)
		}
		return c.apply(ctx, fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: active}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: web}
spec:
  replicas: %d
  selector: {matchLabels: {app: web}}
  strategy:
    %s
  template:
    metadata:
      labels:
        app: web
        %s
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: web, image: registry.example.com/web:v1}]
`, pods, strategy, label))
	}
}

func (c *cell) apply(ctx context.Context, manifest string) error {
	return c.KubectlWith(ctx, manifest, "--namespace", c.Namespace, "apply", "-f", "-")
}

// image changes the image of the Rollout.
func (c *cell) image(ctx context.Context, version string) error {
	return c.Kubectl(ctx, "--namespace", c.Namespace, "patch", "rollout", "web", "--type=json",
		"--patch", `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"registry.example.com/web:`+version+`"}]`)
}

// old returns how many pods of the beginning are left, and how many of those are in a lifecycle. The caller holds the lock.
func (c *cell) old() (left, waiting int) {
	for uid, pod := range c.Pods {
		if _, was := c.before[uid]; !was {
			continue
		}
		left++
		if stagetest.IsWaiting(pod) {
			waiting++
		}
	}
	return left, waiting
}

// kept returns how many pods of the beginning are left.
func (c *cell) kept() int {
	c.Lock()
	defer c.Unlock()
	left, _ := c.old()
	return left
}

// awaitReplaced waits until no pod of the beginning is left.
func (c *cell) awaitReplaced(ctx context.Context) error {
	return c.Await(ctx, "other pods", func() bool { left, _ := c.old(); return left == 0 })
}

// awaitHealthy waits until the controller has seen that the pods serve. Before, it may write the spec that it has read over a change.
func (c *cell) awaitHealthy(ctx context.Context) error {
	return c.Kubectl(ctx, "--namespace", c.Namespace, "wait", "rollout/web", "--for=jsonpath={.status.phase}=Healthy", "--timeout=60s")
}

func updateRollout(ctx context.Context, c *cell) error {
	if err := c.awaitHealthy(ctx); err != nil {
		return err
	}
	if err := c.image(ctx, "v2"); err != nil {
		return err
	}
	return c.awaitReplaced(ctx)
}

// undoRollout changes the image back once the old pods leave: with the label, once each of them waits for its rules. Once none of them waits
// any more, it approves all pods until the others are gone.
func undoRollout(ctx context.Context, c *cell) error {
	if err := c.awaitHealthy(ctx); err != nil {
		return err
	}
	if err := c.image(ctx, "v2"); err != nil {
		return err
	}
	err := c.Await(ctx, "old pods that leave", func() bool {
		left, waiting := c.old()
		return left == waiting
	})
	if err != nil {
		return err
	}
	if err := c.image(ctx, "v1"); err != nil {
		return err
	}
	if err := c.Await(ctx, "old pods that stay", func() bool { _, waiting := c.old(); return waiting == 0 }); err != nil {
		return err
	}
	isNew := func(pod *corev1.Pod) bool { return strings.HasSuffix(pod.Spec.Containers[0].Image, ":v2") }
	return c.approving(ctx, func() bool { return len(c.Pods) == len(c.before) && len(c.gone) > 0 && c.Count(isNew) == 0 })
}

// restartRollout restarts the pods of the Rollout, and approves them after the first was refused.
func restartRollout(ctx context.Context, c *cell) error {
	if err := c.Await(ctx, "pods that are older than the restart", c.isOld); err != nil {
		return err
	}
	at := time.Now().UTC().Add(-time.Second).Format(time.RFC3339) // Argo Rollouts may miss a time to come
	if err := c.Kubectl(ctx, "--namespace", c.Namespace, "patch", "rollout", "web", "--type=merge", "--patch", `{"spec":{"restartAt":"`+at+`"}}`); err != nil {
		return err
	}
	if err := c.awaitLeaving(ctx); err != nil {
		return err
	}
	return c.approving(ctx, func() bool { left, _ := c.old(); return left == 0 })
}

// approving approves all pods, also new ones, until a condition holds.
func (c *cell) approving(ctx context.Context, holds func() bool) error {
	for {
		if err := approve(ctx, c); err != nil {
			return err
		}
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		err := c.Await(bounded, "the end of approvals", holds)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}
