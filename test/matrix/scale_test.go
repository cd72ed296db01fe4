package matrix_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/stage/stagetest"
)

// shardSets is a kind with a scale subresource, and the right of the manager to read it.
const (
	shardSets = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shardsets.matrix.podops.dev}
spec:
  group: matrix.podops.dev
  names: {kind: ShardSet, plural: shardsets, singular: shardset}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
`
	shardSetReader = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: podops-owner-reader-shardsets
  labels: {podops.kusionstack.io/aggregate-to-owner-reader: "true"}
rules:
- {apiGroups: [matrix.podops.dev], resources: [shardsets], verbs: [list, watch]}
- {apiGroups: [matrix.podops.dev], resources: [shardsets/scale], verbs: [get]}
`
)

// testScale checks that the pods of a custom kind are counted by its scale, and that an owner which the manager
// may not read shows as a condition.
func testScale(t *testing.T, w *cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	must := func(doing string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", doing, err)
		}
	}
	must("creating the kind", w.KubectlWith(ctx, shardSets, "apply", "-f", "-"))
	must("waiting for the kind", w.Kubectl(ctx, "wait", "--for=condition=Established", "crd/shardsets.matrix.podops.dev", "--timeout=30s"))
	c, err := newCell(ctx, w, stagetest.OneAtATime())
	must("making the namespace", err)
	set := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": int64(2)}}}
	set.SetAPIVersion("matrix.podops.dev/v1")
	set.SetKind("ShardSet")
	set.SetNamespace(c.Namespace)
	set.SetName("web")
	must("creating the owner", c.Create(ctx, set))
	for i := range 2 {
		template := c.Template()
		pod := &corev1.Pod{ObjectMeta: c.Meta(fmt.Sprintf("web-%d", i)), Spec: template.Spec}
		pod.Labels = template.Labels
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, set.GroupVersionKind())}
		must("creating a pod", c.Create(ctx, pod))
	}
	must("creating pods", c.awaitAvailable(ctx, 2))

	rule := &appsv1alpha1.PodTransitionRule{ObjectMeta: c.Meta("web")}
	unreadable := func() bool {
		condition := meta.FindStatusCondition(rule.Status.Conditions, appsv1alpha1.ConditionOwnersCounted)
		return condition != nil && condition.Reason == appsv1alpha1.ReasonOwnerUnreadable
	}
	observed := func(replicas int) {
		t.Helper()
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"status":{"replicas":%d}}`, replicas))
		must("writing the status of the owner", c.Status().Patch(ctx, set, patch))
	}
	desired := func(pods int32) {
		t.Helper()
		must(fmt.Sprintf("waiting for %d desired pods", pods), c.awaitObject(ctx, rule, func() bool {
			return rule.Status.Desired == pods && !unreadable()
		}))
	}
	observed(2)
	must("waiting for the condition", c.awaitObject(ctx, rule, unreadable))
	must("granting the right", w.KubectlWith(ctx, shardSetReader, "apply", "-f", "-"))
	desired(2)
	must("scaling out", c.patch(ctx, set, `{"spec":{"replicas":4}}`))
	desired(4)
	must("scaling in", c.patch(ctx, set, `{"spec":{"replicas":2}}`))
	desired(2)

	// Of two desired pods one may go. The other one stays although it is the only one.
	must("deleting", kubectl("delete", "pod", "web-0", "--wait=false")(ctx, c))
	must("deleting", c.Await(ctx, "the end of a pod", func() bool { return len(c.Pods) == 1 }))
	observed(1)
	must("deleting", refused(kubectl("delete", "pod", "web-1", "--wait=false"))(ctx, c))
	must("deleting", c.awaitWaiting(ctx))
	desired(2)
	time.Sleep(calm)
	if got := len(c.uids()); got != 1 {
		t.Errorf("%d pods are left, want the single pod that is needed", got)
	}

	must("revoking the right", w.Kubectl(ctx, "delete", "clusterrole", "podops-owner-reader-shardsets"))
	must("waiting for the condition", c.Await(ctx, "the condition", func() bool {
		// A change has the scale read again; the role is aggregated a moment later.
		touch := fmt.Sprintf(`{"metadata":{"annotations":{"matrix.podops.dev/touched":"%d"}}}`, time.Now().UnixNano())
		return c.patch(ctx, set, touch) == nil && c.Get(ctx, client.ObjectKeyFromObject(rule), rule) == nil && unreadable()
	}))
	must("granting the right again", w.KubectlWith(ctx, shardSetReader, "apply", "-f", "-"))
	desired(2)
}
