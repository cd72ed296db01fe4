package clients_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/stage/stagetest"
)

// kruise is the program of OpenKruise.
const kruise = "kruise"

// kruises are the stories of OpenKruise.
func kruises() []story {
	replaced := end{gone: exactly(4), least: 3, text: "all pods are replaced; at least 3 of 4 serve"}
	return []story{
		{client: "OpenKruise", does: "Advanced DaemonSet with `maxUnavailable: 1`, approved once its pods wait", needs: kruise, rule: stagetest.Approved(), limits: "approval",
			workload: advancedDaemonSet, pods: 4, act: then(nothing, updateDaemons), without: replaced, with: replaced},
		{client: "OpenKruise", does: "CloneSet, scale-in by one, approved once its pods wait", needs: kruise, rule: stagetest.Approved(), limits: "approval",
			workload: cloneSet, pods: 4, left: 3, act: then(nothing, scaleIn),
			without: end{gone: exactly(1), least: 3, text: "1 goes"}, with: end{gone: exactly(1), least: 3, text: "1 goes"}},
	}
}

// startKruise starts the manager of OpenKruise, with the CustomResourceDefinitions of its module, and the webhooks that set defaults in
// the workloads of the stories.
func startKruise(t *testing.T, w *cluster) {
	t.Helper()
	path, built := w.program(kruise)
	if !built {
		return
	}
	dir := filepath.Join(moduleDir(t, kruise, "github.com/openkruise/kruise"), "config")
	if err := w.Kubectl(t.Context(), "apply", "--server-side", "-f", filepath.Join(dir, "crd", "bases")); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := w.account(t.Context(), types.NamespacedName{Namespace: "kruise-system", Name: "kruise-manager"})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range kruiseWebhooks() {
		if err := w.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	start(t, w, kruise, "env", "WEBHOOK_HOST=127.0.0.1", "WEBHOOK_PORT="+port, "WEBHOOK_CERT_DIR="+filepath.Join(w.Dir(), "kruise-certificates"),
		"POD_NAMESPACE=kruise-system", "KUBECONFIG="+kubeconfig, path, "--enable-leader-election=false", "--enable-pprof=false",
		"--metrics-addr", "0", "--health-probe-addr", "0")
}

// kruiseWebhooks returns the webhook configurations in which OpenKruise writes its address.
func kruiseWebhooks() []client.Object {
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "kruise-mutating-webhook-configuration"}}
	for _, resource := range []string{"cloneset", "daemonset"} {
		mutating.Webhooks = append(mutating.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name: "m" + resource + ".kb.io", AdmissionReviewVersions: []string{"v1", "v1beta1"},
			SideEffects: new(admissionregistrationv1.SideEffectClassNone), FailurePolicy: new(admissionregistrationv1.Fail),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
				Namespace: "kruise-system", Name: "kruise-webhook-service", Path: new("/mutate-apps-kruise-io-" + resource),
			}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"apps.kruise.io"}, APIVersions: []string{"v1alpha1"}, Resources: []string{resource + "s"}},
			}},
		})
	}
	return []client.Object{
		mutating,
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "kruise-validating-webhook-configuration"}},
	}
}

// template in YAML, for workloads of OpenKruise.
func (c *cell) kruiseTemplate() string {
	label := ""
	if c.controlled {
		label = fmt.Sprintf(", %s: %q", appsv1alpha1.ControlLabelKey, appsv1alpha1.ControlLabelValue)
	}
	return fmt.Sprintf(`
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web%s}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: web, image: registry.example.com/web:v1}]
`, label)
}

func advancedDaemonSet(ctx context.Context, c *cell, _ int32) error {
	return c.applyKruise(ctx, `
apiVersion: apps.kruise.io/v1alpha1
kind: DaemonSet
metadata: {name: web}
spec:
  updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1}}`)
}

func cloneSet(ctx context.Context, c *cell, pods int32) error {
	return c.applyKruise(ctx, fmt.Sprintf(`
apiVersion: apps.kruise.io/v1alpha1
kind: CloneSet
metadata: {name: web}
spec:
  replicas: %d`, pods))
}

// applyKruise creates a workload. Until the webhooks of OpenKruise answer, the API server rejects it.
func (c *cell) applyKruise(ctx context.Context, manifest string) error {
	for {
		err := c.apply(ctx, manifest+c.kruiseTemplate())
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Second):
		}
	}
}

func updateDaemons(ctx context.Context, c *cell) error {
	err := c.Kubectl(ctx, "--namespace", c.Namespace, "patch", "daemonset.apps.kruise.io", "web", "--type=json",
		"--patch", `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"registry.example.com/web:v2"}]`)
	if err != nil {
		return err
	}
	if err := c.awaitLeaving(ctx); err != nil {
		return err
	}
	return c.approving(ctx, func() bool { left, _ := c.old(); return left == 0 })
}

func scaleIn(ctx context.Context, c *cell) error {
	if err := c.Kubectl(ctx, "--namespace", c.Namespace, "patch", "cloneset", "web", "--type=merge", "--patch", `{"spec":{"replicas":3}}`); err != nil {
		return err
	}
	if err := c.awaitLeaving(ctx); err != nil {
		return err
	}
	return c.approving(ctx, func() bool { return len(c.gone) > 0 })
}
