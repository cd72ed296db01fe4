package clients_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/util/cert"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// lws is the program of LeaderWorkerSet.
const lws = "lws"

// groups are the stories of LeaderWorkerSet: 4 groups of a leader and 2 workers.
func groups() []story {
	replaced := end{gone: exactly(12), text: "all pods are replaced, group by group"}
	return []story{
		{client: "LeaderWorkerSet", does: "rolling update of 4 groups of 3, `maxUnavailable: 2`", needs: lws, rule: quarter(), limits: "25 %",
			workload: leaderWorkerSet, pods: 12, act: then(nothing, updateGroups), without: replaced.serving(6), with: replaced.serving(9)},
	}
}

// groupNameLabel is on every pod of a LeaderWorkerSet.
const groupNameLabel = "leaderworkerset.sigs.k8s.io/name"

// startGroups starts the controller of LeaderWorkerSet, with the CustomResourceDefinition and the webhooks of its module.
func startGroups(t *testing.T, w *cluster) {
	t.Helper()
	path, built := w.program(lws)
	if !built {
		return
	}
	dir := filepath.Join(moduleDir(t, lws, "sigs.k8s.io/lws"), "config")
	if err := w.Kubectl(t.Context(), "apply", "--server-side", "-f", filepath.Join(dir, "crd", "bases")); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := w.account(t.Context(), types.NamespacedName{Namespace: "lws-system", Name: lws})
	if err != nil {
		t.Fatal(err)
	}
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	certificates := filepath.Join(w.Dir(), "lws-certificates")
	authority, err := serving(certificates)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.register(t.Context(), filepath.Join(dir, "webhook", "manifests.yaml"), "https://127.0.0.1:"+port, authority); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(w.Dir(), "lws.yaml")
	configuration := fmt.Appendf(nil, `apiVersion: config.lws.x-k8s.io/v1alpha1
kind: Configuration
internalCertManagement: {enable: false}
leaderElection: {leaderElect: false}
webhook: {host: 127.0.0.1, port: %s, certDir: %q}
metrics: {bindAddress: "0"}
health: {healthProbeBindAddress: "0"}
`, port, certificates)
	if err := os.WriteFile(file, configuration, 0o644); err != nil {
		t.Fatal(err)
	}
	start(t, w, lws, path, "--kubeconfig", kubeconfig, "--config", file)
}

// serving writes a certificate for servers on this machine into a folder, and returns it.
func serving(dir string) (authority []byte, err error) {
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	err = errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "tls.crt"), certificate, 0o644), os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600))
	return certificate, err
}

// register registers the webhooks in a manifest file at an address. Pod webhooks are called for pods of LeaderWorkerSets only, as
// in its installation.
func (w *cluster) register(ctx context.Context, file, address string, authority []byte) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	own := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: groupNameLabel, Operator: metav1.LabelSelectorOpExists}}}
	at := func(config *admissionregistrationv1.WebhookClientConfig, selector **metav1.LabelSelector) {
		url := address + *config.Service.Path
		*config = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: authority}
		if filepath.Base(url) == "mutate--v1-pod" || filepath.Base(url) == "validate--v1-pod" {
			*selector = own
		}
	}
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", file, err)
		}
		if err := w.registerOne(ctx, document, at); err != nil {
			return err
		}
	}
}

// registerOne registers the webhooks of one document.
func (w *cluster) registerOne(ctx context.Context, document []byte, at func(*admissionregistrationv1.WebhookClientConfig, **metav1.LabelSelector)) error {
	mutating, validating := &admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if bytes.Contains(document, []byte("kind: Mutating")) {
		if err := yaml.UnmarshalStrict(document, mutating); err != nil {
			return fmt.Errorf("reading a MutatingWebhookConfiguration: %w", err)
		}
		for i := range mutating.Webhooks {
			at(&mutating.Webhooks[i].ClientConfig, &mutating.Webhooks[i].ObjectSelector)
		}
		return w.Create(ctx, mutating)
	}
	if err := yaml.UnmarshalStrict(document, validating); err != nil {
		return fmt.Errorf("reading a ValidatingWebhookConfiguration: %w", err)
	}
	for i := range validating.Webhooks {
		at(&validating.Webhooks[i].ClientConfig, &validating.Webhooks[i].ObjectSelector)
	}
	return w.Create(ctx, validating)
}

// leaderWorkerSet creates groups of 3 pods.
func leaderWorkerSet(ctx context.Context, c *cell, pods int32) error {
	const size = 3
	label := ""
	if c.controlled {
		label = fmt.Sprintf(", %s: %q", appsv1alpha1.ControlLabelKey, appsv1alpha1.ControlLabelValue)
	}
	return c.apply(ctx, fmt.Sprintf(`
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: web}
spec:
  replicas: %d
  rolloutStrategy: {type: RollingUpdate, rollingUpdateConfiguration: {maxUnavailable: 2, maxSurge: 0}}
  leaderWorkerTemplate:
    size: %d
    workerTemplate:
      metadata: {labels: {app: web%s}}
      spec:
        terminationGracePeriodSeconds: 1
        containers: [{name: web, image: registry.example.com/web:v1}]
`, pods/size, size, label))
}

// updateGroups changes the image of every pod, and waits until all are replaced.
func updateGroups(ctx context.Context, c *cell) error {
	err := c.Kubectl(ctx, "--namespace", c.Namespace, "patch", "leaderworkerset", "web", "--type=json",
		"--patch", `[{"op":"replace","path":"/spec/leaderWorkerTemplate/workerTemplate/spec/containers/0/image","value":"registry.example.com/web:v2"}]`)
	if err != nil {
		return err
	}
	return c.awaitReplaced(ctx)
}
