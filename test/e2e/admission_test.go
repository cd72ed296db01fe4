package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/expect"
	"github.com/podops-dev/podops/test/managerprocess"
)

const (
	operating     = appsv1alpha1.OperatingLabelPrefix + "/"
	operationType = appsv1alpha1.OperationTypeLabelPrefix + "/"
	undo          = appsv1alpha1.UndoOperationTypeLabelPrefix + "/"
	permission    = appsv1alpha1.OperationPermissionLabelPrefix + "/"
	preChecked    = appsv1alpha1.PreCheckedLabelPrefix + "/"
	operate       = appsv1alpha1.OperateLabelPrefix + "/"

	// someFinalizer protects a pod for a service controller that the scenario simulates.
	someFinalizer = appsv1alpha1.ProtectionFinalizerPrefix + "/e2e"
)

var _ = Describe("Admission of pods", Label(mainStories), func() {
	var p scenario

	BeforeEach(func(ctx context.Context) { p = newScenario(ctx) })

	// serving creates an available pod.
	serving := func(ctx context.Context) *corev1.Pod {
		GinkgoHelper()
		p.pods(ctx, 1, nil)
		return p.list(ctx)[0]
	}

	DescribeTable("rejects invalid labels and labels that clients must not set, and changes nothing",
		func(ctx context.Context, code int32, labels map[string]any, texts ...string) {
			pod := serving(ctx)
			Expect(p.trySetLabels(ctx, pod.DeepCopy(), labels)).To(expect.BeRefused(code, texts...))
			Expect(p.get(ctx, pod.Name).Labels).To(Equal(pod.Labels))
		},
		Entry("operating without a type", int32(422), map[string]any{operating + "a": "1"}, operating+"a", operationType+"a"),
		Entry("a type without operating", int32(422), map[string]any{operationType + "a": "update"}, operating+"a", operationType+"a"),
		Entry("an id of 64 characters", int32(422), beginLabels(strings.Repeat("i", 64), "update"), "metadata.labels", "63"),
		Entry("an id with a slash", int32(422), beginLabels("a/b", "update"), "metadata.labels", operating+"a/b"),
		Entry("the operate label", int32(403), map[string]any{operate + "a": "1"}, operate+"a"),
		Entry("a permission label", int32(403), map[string]any{permission + "update": "1"}, permission+"update"),
		Entry("a begin with a permit", int32(403),
			map[string]any{operating + "a": "1", operationType + "a": "update", preChecked + "a": "1"}, preChecked+"a"),
		Entry("another value of service-available", int32(403),
			map[string]any{appsv1alpha1.ServiceAvailableLabelKey: "1"}, appsv1alpha1.ServiceAvailableLabelKey),
	)

	It("rejects an annotation that cannot be parsed", func(ctx context.Context) {
		pod := serving(ctx)
		for text, refusal := range map[string]string{"{": "metadata.annotations", strings.Repeat("x", 40<<10): "metadata.annotations", strings.Repeat("x", 300<<10): "Too long"} {
			patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, appsv1alpha1.AvailableConditionsAnnotationKey, text))
			Expect(p.admin.Patch(ctx, pod.DeepCopy(), patch)).To(expect.BeRefused(422, refusal))
		}
		Consistently(ctx, p.seeing(pod.Name)).Should(expect.BeAvailable())
	})

	It("restores PodOps labels that a client drops, in the response", func(ctx context.Context) {
		p.rule(ctx, approved())
		pod := serving(ctx)
		p.begin(ctx, pod, "a", "update")
		Expect(pod).To(expect.BeWaiting("a"))
		generation := pod.Labels[appsv1alpha1.PreCheckLabelPrefix+"/a"]
		p.setLabels(ctx, pod, map[string]any{appsv1alpha1.PreCheckLabelPrefix + "/a": nil, appsv1alpha1.ServiceAvailableLabelKey: nil})
		Expect(pod.Labels).To(HaveKeyWithValue(appsv1alpha1.PreCheckLabelPrefix+"/a", generation))
		Expect(pod).To(expect.HaveLabel(appsv1alpha1.ServiceAvailableLabelKey))
		Consistently(ctx, p.seeing(pod.Name)).Should(expect.BeWaiting("a"))
	})

	It("removes PodOps labels from a copied manifest, with a warning, and adds the gate", func(ctx context.Context) {
		manifest := filepath.Join(GinkgoT().TempDir(), "pod.yaml")
		Expect(os.WriteFile(manifest, fmt.Appendf(nil, `
apiVersion: v1
kind: Pod
metadata:
  name: copy
  labels:
    app: web
    %s: "true"
    %s: "1"
    %s: "1"
    %s: update
spec:
  containers:
  - {name: web, image: registry.example.com/web:v1}
`, appsv1alpha1.ControlLabelKey, operate+"a", operating+"a", operationType+"a"), 0o600)).To(Succeed())
		_, complaints := p.kubectl(ctx, "create", "--namespace", p.namespace, "-f", manifest)
		Expect(complaints).To(And(ContainSubstring("Warning"), ContainSubstring(operate+"a"), ContainSubstring(operating+"a")))
		pod := p.get(ctx, "copy")
		Expect(pod).To(expect.HaveNoLifecycle())
		Expect(pod.Spec.ReadinessGates).To(ConsistOf(corev1.PodReadinessGate{ConditionType: appsv1alpha1.ServiceReadyGate}))
		p.awaitAvailable(ctx, 1)
	})

	It("applies undo before operate in one request, and keeps the permission of another id", func(ctx context.Context) {
		service := serviceController{employer: "web"}
		p.service(ctx, service.employer)
		p.pod(ctx, "web", func(pod *corev1.Pod) {
			service.announce(pod)
			pod.Finalizers = []string{service.finalizer()}
		})
		p.awaitAvailable(ctx, 1)
		pod := p.get(ctx, "web")
		both := beginLabels("a", "update")
		for key, value := range beginLabels("b", "update") {
			both[key] = value
		}
		p.setLabels(ctx, pod, both)
		Eventually(ctx, p.seeing("web")).Should(And(expect.BePermitted("a"), expect.BePermitted("b"), expect.HaveGate(corev1.ConditionFalse), Not(expect.BeReady())))

		By("undoing a with the write that removes the last finalizer")
		p.patch(ctx, pod, `{"metadata":{"finalizers":null,"labels":{%q:"update"}}}`, undo+"a")
		Expect(pod).To(And(expect.BeOperable("b"), expect.HaveLabel(permission+"update"), expect.HaveLabel(operationType+"b")))
		Expect(expect.LifecycleLabels(pod)).NotTo(HaveKey(HaveSuffix("/a")))

		By("undoing the last id")
		p.setLabels(ctx, pod, map[string]any{undo + "b": "update"})
		Expect(pod).To(expect.HaveNoLifecycle())
		p.patch(ctx, pod, `{"metadata":{"finalizers":[%q]}}`, service.finalizer())
		p.awaitAvailable(ctx, 1)
	})

	It("accepts updates of a terminating pod", func(ctx context.Context) {
		p.pod(ctx, "web", func(pod *corev1.Pod) { pod.Finalizers = []string{"e2e.podops.dev/keep"} })
		p.awaitAvailable(ctx, 1)
		pod := p.get(ctx, "web")
		Expect(p.admin.Delete(ctx, pod, forced)).To(Succeed())
		add := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"finalizers":["e2e.podops.dev/keep",%q]}}`, someFinalizer))
		Expect(p.admin.Patch(ctx, pod.DeepCopy(), add)).To(expect.BeRefused(422, "no new finalizers can be added"))
		p.patch(ctx, pod, `{"metadata":{"finalizers":null}}`)
		Eventually(ctx, p.list).Should(BeEmpty())
	})

	It("ends the lifecycles of a pod that loses the control label, and opens its gate", func(ctx context.Context) {
		p.pod(ctx, "web", func(pod *corev1.Pod) { pod.Finalizers = []string{someFinalizer} })
		p.awaitAvailable(ctx, 1)
		pod := p.get(ctx, "web")
		p.begin(ctx, pod, "a", "update")
		Eventually(ctx, p.seeing("web")).Should(And(expect.BePermitted("a"), expect.HaveGate(corev1.ConditionFalse)))
		p.setLabels(ctx, pod, map[string]any{appsv1alpha1.ControlLabelKey: nil})
		Expect(pod).To(And(expect.HaveNoLifecycle(), Not(expect.HaveLabel(appsv1alpha1.ServiceAvailableLabelKey))))
		Eventually(ctx, p.seeing("web")).Should(And(expect.HaveGate(corev1.ConditionTrue), expect.BeReady()))
	})

	It("keeps a pod without traffic while it must stay offline", func(ctx context.Context) {
		pod := serving(ctx)
		p.label(ctx, pod, appsv1alpha1.StayOfflineLabelKey, "true")
		Eventually(ctx, p.seeing(pod.Name)).Should(And(expect.HaveGate(corev1.ConditionFalse), Not(expect.BeReady()), Not(expect.HaveLabel(appsv1alpha1.ServiceAvailableLabelKey))))
		Consistently(ctx, p.seeing(pod.Name)).ShouldNot(expect.BeAvailable())
		p.setLabels(ctx, pod, map[string]any{appsv1alpha1.StayOfflineLabelKey: nil})
		p.awaitAvailable(ctx, 1)
	})

	It("protects a pod without the gate by its finalizers alone", func(ctx context.Context) {
		p.pod(ctx, "web", func(pod *corev1.Pod) {
			delete(pod.Labels, appsv1alpha1.ControlLabelKey)
			pod.Finalizers = []string{someFinalizer}
		})
		Eventually(ctx, p.seeing("web")).Should(expect.BeReady())
		pod := p.get(ctx, "web")
		Expect(pod.Spec.ReadinessGates).To(BeEmpty())
		p.label(ctx, pod, appsv1alpha1.ControlLabelKey, appsv1alpha1.ControlLabelValue)
		p.awaitAvailable(ctx, 1)
		p.begin(ctx, pod, "a", "update")
		Eventually(ctx, p.seeing("web")).Should(And(expect.BePermitted("a"), haveCondition(appsv1alpha1.ConditionGateMissing)))
		Consistently(ctx, p.seeing("web")).ShouldNot(expect.BeOperable("a"))
		Eventually(ctx, func(ctx context.Context) ([]string, error) { return reasons(ctx, p, "web") }).Should(ContainElement("GateMissing"))
		p.patch(ctx, pod, `{"metadata":{"finalizers":null}}`)
		Eventually(ctx, p.seeing("web")).Should(expect.BeOperable("a"))
		p.setLabels(ctx, pod, map[string]any{operating + "a": nil})
		p.awaitAvailable(ctx, 1)
		Expect(p.get(ctx, "web")).To(expect.HaveGate(""), "no gate is written")
	})

	It("reports labels that bypassed admission on the pod, until they are valid", func(ctx context.Context) {
		pod := serving(ctx)
		slip := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:"1"}}}`, operating+"a"))
		trusted := p.asServiceAccount(managerprocess.Namespace, managerprocess.Account)
		Expect(trusted.Patch(ctx, pod.DeepCopy(), slip)).To(Succeed())
		Eventually(ctx, p.seeing(pod.Name)).Should(haveCondition(appsv1alpha1.ConditionInvalidLifecycle))
		Expect(p.get(ctx, pod.Name)).To(And(expect.BeAvailable(), Not(expect.BeWaiting("a"))))
		p.setLabels(ctx, pod, map[string]any{operating + "a": nil})
		Eventually(ctx, p.seeing(pod.Name)).Should(And(expect.HaveNoLifecycle(), Not(haveCondition(appsv1alpha1.ConditionInvalidLifecycle))))
	})

	It("rejects wait annotations that cannot be parsed", func(ctx context.Context) {
		pod := serving(ctx)
		for key, text := range map[string]string{appsv1alpha1.SettleTimeAnnotationKey: "5", appsv1alpha1.GateSyncPolicyAnnotationKey: "hold"} {
			patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, text))
			Expect(p.admin.Patch(ctx, pod.DeepCopy(), patch)).To(expect.BeRefused(422, key, text))
		}
	})

	It("accepts thirty ids at once, and is available again after the last", func(ctx context.Context) {
		const count = 30
		pod := serving(ctx)
		all, most := map[string]any{}, map[string]any{}
		for i := range count {
			id := fmt.Sprintf("id-%02d", i)
			for key, value := range beginLabels(id, fmt.Sprintf("type-%d", i%3)) {
				all[key] = value
			}
			if i > 0 {
				most[operating+id] = nil
			}
		}
		p.setLabels(ctx, pod, all)
		operable := func(count int) func(*corev1.Pod) bool {
			return func(pod *corev1.Pod) bool { return countPrefix(pod, operate) == count }
		}
		Eventually(ctx, p.seeing(pod.Name)).Should(Satisfy(operable(count)))

		p.setLabels(ctx, pod, most)
		Expect(pod).To(Satisfy(operable(1)))
		Consistently(ctx, p.seeing(pod.Name)).ShouldNot(expect.HaveLabel(appsv1alpha1.ServiceAvailableLabelKey))
		// Each id has at most: client labels and one label per step, with old and new
		// names.
		Expect(len(p.get(ctx, pod.Name).Labels)).To(BeNumerically("<", count*8))

		p.setLabels(ctx, pod, map[string]any{operating + "id-00": nil})
		p.awaitAvailable(ctx, 1)
		Expect(len(p.get(ctx, pod.Name).Labels)).To(BeNumerically("<", 5))
	})

	It("is not needed to keep forgeries out of pods/status", func(ctx context.Context) {
		pod := serving(ctx)
		forge := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:"1"}}}`, operate+"a"))
		root := p.as("eve", []string{"system:masters"})
		Expect(root.Status().Patch(ctx, pod.DeepCopy(), forge)).To(expect.BeRefused(403, operate+"a"))
		report := client.RawPatch(types.StrategicMergePatchType, []byte(`{"status":{"conditions":[{"type":"e2e.podops.dev/seen","status":"True"}]}}`))
		node := p.as("system:node:"+pod.Spec.NodeName, []string{"system:nodes", "system:authenticated"})
		Expect(node.Status().Patch(ctx, pod, report)).To(Succeed())
		Expect(p.get(ctx, pod.Name)).To(expect.BeAvailable())
	})
})

// While no manager runs, only operations of lifecycles may wait.
var _ = Describe("Without a manager", func() {
	It("kubelets report, pods without PodOps are created and deleted, and deletes pass", func(ctx context.Context) {
		p := newScenario(ctx)
		p.replicaSet(ctx, 2)
		pods := p.list(ctx)
		managers.stopAll()
		DeferCleanup(func(ctx context.Context) { managers.start(ctx) })

		By("restarting a container: its image changes, and the kubelet reports it")
		update := client.RawPatch(types.StrategicMergePatchType, fmt.Appendf(nil, `{"spec":{"containers":[{"name":"web","image":%q}]}}`, newImage))
		Expect(p.admin.Patch(ctx, pods[0], update)).To(Succeed())
		Eventually(ctx, p.seeing(pods[0].Name)).Should(And(Satisfy(func(pod *corev1.Pod) bool { return runs(pod, newImage) }), expect.BeReady()))

		By("creating a pod that is not controlled")
		p.pod(ctx, "free", func(pod *corev1.Pod) { pod.Labels = map[string]string{"app": "free"} })
		Eventually(ctx, p.seeing("free")).Should(expect.BeReady())
		Expect(p.admin.Delete(ctx, p.get(ctx, "free"))).To(Succeed())

		By("rejecting the begin of a lifecycle")
		Expect(p.trySetLabels(ctx, pods[0].DeepCopy(), beginLabels("a", "update"))).To(expect.BeRefused(500, "pods.podops.kusionstack.io"))

		By("accepting deletes")
		Expect(p.asReplicaSetController().Delete(ctx, pods[1])).To(Succeed())
		Eventually(ctx, func(ctx context.Context) error {
			_, err := p.seeing(pods[1].Name)(ctx)
			return err
		}).Should(Satisfy(apierrors.IsNotFound))
	})
})

// countPrefix returns the number of labels with a prefix.
func countPrefix(pod *corev1.Pod, prefix string) int {
	count := 0
	for key := range pod.Labels {
		if strings.HasPrefix(key, prefix) {
			count++
		}
	}
	return count
}
