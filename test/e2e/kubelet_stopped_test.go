package e2e_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/audit"
	"github.com/podops-dev/podops/test/expect"
)

// handmade simulates the kubelet of a node whose status reports the scenario writes: it
// stops when the scenario stops writing.
type handmade struct {
	scenario
	node string
}

// handmadeNode registers a node without a simulated kubelet.
func handmadeNode(ctx context.Context, p scenario) handmade {
	GinkgoHelper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "handmade-" + p.namespace}, Spec: corev1.NodeSpec{Unschedulable: true}}
	Expect(p.admin.Create(ctx, node)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(p.admin.Delete(ctx, node)).To(Succeed()) })
	return handmade{scenario: p, node: node.Name}
}

// start creates a pod on the node.
func (h handmade) start(ctx context.Context, name string, change func(*corev1.Pod)) {
	GinkgoHelper()
	pod := h.pod(ctx, name, func(pod *corev1.Pod) {
		pod.Spec.NodeName = h.node
		if change != nil {
			change(pod)
		}
	})
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(h.admin.Delete(ctx, pod, client.GracePeriodSeconds(0)))).To(Succeed())
	})
	h.report(ctx, name, false)
}

// report writes one status report: the containers are ready, and the pod is ready, too,
// unless its gates prevent it.
func (h handmade) report(ctx context.Context, name string, ready bool) {
	GinkgoHelper()
	status, reason := corev1.ConditionFalse, "ReadinessGatesNotReady"
	if ready {
		status, reason = corev1.ConditionTrue, ""
	}
	patch, err := json.Marshal(map[string]any{"status": corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
		{Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
		{Type: corev1.PodReady, Status: status, Reason: reason},
	}}})
	Expect(err).NotTo(HaveOccurred())
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: name}}
	Expect(h.admin.Status().Patch(ctx, pod, client.RawPatch(types.StrategicMergePatchType, patch))).To(Succeed())
}

// haveCondition matches a pod on which a condition is True, with the reason at the end of
// its type.
func haveCondition(kind string) OmegaMatcher {
	return HaveField("Status.Conditions", ContainElement(And(
		HaveField("Type", corev1.PodConditionType(kind)), HaveField("Status", corev1.ConditionTrue),
		HaveField("Reason", kind[strings.LastIndex(kind, "/")+1:]), HaveField("Message", Not(BeEmpty())))))
}

// haveGateReason matches a pod whose gate has a reason; empty: none.
func haveGateReason(reason string) OmegaMatcher {
	return WithTransform(func(pod *corev1.Pod) string {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == appsv1alpha1.ServiceReadyGate {
				return condition.Reason
			}
		}
		return "no condition"
	}, Equal(reason))
}

var _ = Describe("A kubelet that stops", Ordered, func() {
	const (
		id              = "updater"
		gateSyncTimeout = 3 * time.Second
	)

	BeforeAll(func(ctx context.Context) {
		managers.stopAll()
		hasty := managers.launch("--gate-sync-timeout", gateSyncTimeout.String())
		Eventually(ctx, hasty.Ready).Should(Succeed())
		DeferCleanup(func(ctx context.Context) {
			managers.stopAll()
			managers.start(ctx)
		})
	})

	It("makes its pods unavailable once their gate was opened, until it reports again", func(ctx context.Context) {
		kubelet := handmadeNode(ctx, newScenario(ctx))
		versions := recordVersions(kubelet.scenario)
		kubelet.start(ctx, "web", nil)
		available := expect.HaveLabel(appsv1alpha1.ServiceAvailableLabelKey)
		Eventually(ctx, kubelet.seeing("web")).Should(And(Not(available), expect.HaveGate(corev1.ConditionTrue), haveGateReason("KubeletNotSyncing")))
		Eventually(versions).Should(ContainElement(And(available, expect.HaveGate(corev1.ConditionTrue), haveGateReason(""))))
		ledger := openLedger(kubelet.scenario)
		Consistently(ctx, kubelet.seeing("web")).ShouldNot(available)
		Expect(ledger.toPods()).To(BeEmpty(), "it must be withdrawn only once")

		By("starting the kubelet again")
		kubelet.report(ctx, "web", true)
		Eventually(ctx, kubelet.seeing("web")).Should(And(expect.BeAvailable(), haveGateReason("")))
		Eventually(func() audit.Events { return ledger.toPods().Where(accepted) }).Should(HaveLen(1))
	})

	It("delays an operation by the gate sync timeout", func(ctx context.Context) {
		kubelet := handmadeNode(ctx, newScenario(ctx))
		kubelet.start(ctx, "web", nil)
		kubelet.report(ctx, "web", true)
		kubelet.awaitAvailable(ctx, 1)
		versions := recordVersions(kubelet.scenario)
		kubelet.begin(ctx, kubelet.get(ctx, "web"), id, "update")
		Eventually(ctx, kubelet.seeing("web")).Should(And(expect.BeOperable(id), expect.BeReady(), haveGateReason("KubeletNotSyncing")))
		Eventually(versions).Should(ContainElement(And(expect.BePermitted(id), Not(expect.BeOperable(id)), expect.HaveGate(corev1.ConditionFalse), haveGateReason(""))))
		pod := kubelet.get(ctx, "web")
		Expect(labelTime(pod.Labels[operate+id])).To(BeTemporally(">=", labelTime(pod.Labels[preChecked+id]).Add(gateSyncTimeout)))
	})

	It("delays an operation until it reports again, if the pod requires it", func(ctx context.Context) {
		kubelet := handmadeNode(ctx, newScenario(ctx))
		kubelet.start(ctx, "web", func(pod *corev1.Pod) {
			pod.Annotations = map[string]string{appsv1alpha1.GateSyncPolicyAnnotationKey: appsv1alpha1.GateSyncHold}
		})
		kubelet.report(ctx, "web", true)
		kubelet.awaitAvailable(ctx, 1)
		kubelet.begin(ctx, kubelet.get(ctx, "web"), id, "update")
		held := And(expect.BePermitted(id), Not(expect.BeOperable(id)), haveGateReason("KubeletNotSyncing"))
		Eventually(ctx, kubelet.seeing("web")).Should(held)
		Consistently(ctx, kubelet.seeing("web")).Should(held)
		kubelet.report(ctx, "web", false)
		Eventually(ctx, kubelet.seeing("web")).Should(And(expect.BeOperable(id), haveGateReason("")))
	})

	It("makes operations wait for the endpoints of a Service, as long as the pod requires", func(ctx context.Context) {
		p := newScenario(ctx)
		p.pods(ctx, 1, settles)
		pod := p.list(ctx)[0]
		p.begin(ctx, pod, id, "update")
		Eventually(ctx, p.seeing(pod.Name)).Should(And(expect.BeOperable(id), Not(expect.BeReady())))
		Expect(p.get(ctx, pod.Name)).To(haveSettled(id))
	})

	It("makes them wait, too, where a load balancer has taken the pod off before", func(ctx context.Context) {
		p, service := newScenario(ctx), serviceController{employer: "web"}
		p.service(ctx, service.employer)
		p.pods(ctx, 1, func(pod *corev1.Pod) {
			service.announce(pod)
			settles(pod)
			pod.Finalizers = []string{service.finalizer()}
		})
		pod := p.list(ctx)[0]
		p.begin(ctx, pod, id, "update")
		Eventually(ctx, p.seeing(pod.Name)).Should(And(expect.BePermitted(id), Not(expect.BeReady())))
		p.patch(ctx, pod, `{"metadata":{"finalizers":null}}`)
		Expect(pod).NotTo(expect.BeOperable(id))
		Eventually(ctx, p.seeing(pod.Name)).Should(expect.BeOperable(id))
		Expect(p.get(ctx, pod.Name)).To(haveSettled(id))
	})
})

const settleTime = 3 * time.Second

// settles makes a pod settle for settleTime.
func settles(pod *corev1.Pod) {
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, appsv1alpha1.SettleTimeAnnotationKey, settleTime.String())
}

// haveSettled matches a pod that was unready for settleTime before an operation started.
func haveSettled(id string) OmegaMatcher {
	return WithTransform(func(pod *corev1.Pod) time.Duration {
		unready := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
		return labelTime(pod.Labels[operate+id]).Sub(pod.Status.Conditions[unready].LastTransitionTime.Time)
	}, BeNumerically(">=", settleTime))
}
