package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/expect"
)

// apply applies the ReplicaSet web with so many replicas, as GitOps does.
func (p scenario) apply(ctx context.Context, replicas int, flags ...string) {
	GinkgoHelper()
	manifest := filepath.Join(GinkgoT().TempDir(), "set.yaml")
	Expect(os.WriteFile(manifest, fmt.Appendf(nil, `
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web}
spec:
  replicas: %d
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web, %s: "true"}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: web, image: "registry.example.com/web:v1"}]
`, replicas, appsv1alpha1.ControlLabelKey), 0o600)).To(Succeed())
	p.kubectl(ctx, append([]string{"apply", "--namespace", p.namespace, "-f", manifest}, flags...)...)
}

// firstWaiting returns the first of the pods that waits for its deletion.
func firstWaiting(pods []*corev1.Pod) *corev1.Pod {
	GinkgoHelper()
	var waiting []*corev1.Pod
	Expect(pods).To(ContainElement(expect.BeWaiting(podDelete), &waiting))
	return waiting[0]
}

var _ = Describe("A request that is taken back while pods wait", func() {
	var p scenario
	var before []*corev1.Pod

	BeforeEach(func(ctx context.Context) {
		p = newScenario(ctx)
		p.rule(ctx, approved())
	})

	// waits waits until so many pods wait, and notes all pods.
	waits := func(ctx context.Context, count int) {
		GinkgoHelper()
		Eventually(ctx, p.list).Should(WithTransform(waitingFor(podDelete), Equal(count)))
		before = p.list(ctx)
	}
	// expectKept waits until all pods serve before any is approved, and expects that they serve on once all are.
	expectKept := func(ctx context.Context) {
		GinkgoHelper()
		kept := And(WithTransform(uids, ConsistOf(uids(before))), HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle())))
		Eventually(ctx, p.list).Should(kept)
		observer := observe(p)
		p.approve(ctx)
		Consistently(ctx, p.list).WithTimeout(2 * holdWindow).Should(kept)
		Expect(observer.leastAvailable()).To(Equal(len(before)))
	}

	It("by an apply of a ReplicaSet removes no pod", func(ctx context.Context) {
		p.apply(ctx, 4)
		p.awaitAvailable(ctx, 4)
		p.apply(ctx, 2)
		waits(ctx, 2)
		p.apply(ctx, 4)
		expectKept(ctx)
	})

	It("by server-side apply meets no conflict, also once a pod has left", func(ctx context.Context) {
		gitOps := []string{"--server-side", "--field-manager=gitops"}
		p.apply(ctx, 4, gitOps...)
		p.awaitAvailable(ctx, 4)
		p.apply(ctx, 2, gitOps...)
		waits(ctx, 2)
		p.label(ctx, firstWaiting(before), approvedLabel, "true")
		Eventually(ctx, p.list).Should(HaveLen(3))
		p.apply(ctx, 2, gitOps...)
		before = p.list(ctx)
		p.apply(ctx, 3, gitOps...)
		expectKept(ctx)
	})

	It("by a scale-out while no manager runs is not carried out when one runs again", func(ctx context.Context) {
		set := p.replicaSet(ctx, 4)
		p.scale(ctx, set, 2)
		waits(ctx, 2)
		managers.stopAll()
		DeferCleanup(func(ctx context.Context) {
			if len(managers.running()) == 0 {
				managers.start(ctx)
			}
		})
		p.kubectl(ctx, "--namespace", p.namespace, "scale", "replicaset/web", "--replicas=6")
		managers.start(ctx)
		// No controlled pod is created without a manager, and the controller of ReplicaSets backs off.
		Eventually(ctx, p.list).WithTimeout(3 * patience).Should(And(HaveLen(6), HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle()))))
		// Pods that waited when the manager ended may have left before the scale-out. The others were always wanted.
		for _, pod := range before {
			if waitingFor(podDelete)([]*corev1.Pod{pod}) == 0 {
				Expect(uids(p.list(ctx))).To(ContainElement(pod.UID))
			}
		}
		before = p.list(ctx)
		expectKept(ctx)
		Expect(p.annotatedSets(ctx)).To(BeEmpty())
	})

	It("by a scale-out from 0 of the strategy Recreate removes no pod", func(ctx context.Context) {
		deployment := p.deployment(ctx, 3, func(deployment *appsv1.Deployment) {
			deployment.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
		})
		p.scale(ctx, deployment, 0)
		waits(ctx, 3)
		p.scale(ctx, deployment, 3)
		expectKept(ctx)
	})

	It("by the label of a node removes no pod of a DaemonSet", func(ctx context.Context) {
		p.kubectl(ctx, "label", "nodes", "--all", p.namespace+"=yes")
		DeferCleanup(func(ctx context.Context) { p.kubectl(ctx, "label", "nodes", "--all", p.namespace+"-") })
		set := &appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "agent"},
			Spec:       appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: template()},
		}
		set.Spec.Template.Spec.NodeSelector = map[string]string{p.namespace: "yes"}
		Expect(p.admin.Create(ctx, set)).To(Succeed())
		nodes := &corev1.NodeList{}
		Expect(p.admin.List(ctx, nodes)).To(Succeed())
		p.awaitAvailable(ctx, len(nodes.Items))
		node := p.list(ctx)[0].Spec.NodeName
		p.kubectl(ctx, "label", "node", node, p.namespace+"-")
		waits(ctx, 1)
		p.kubectl(ctx, "label", "node", node, p.namespace+"=yes")
		expectKept(ctx)
	})

	It("by the resumption of a Job removes no pod", func(ctx context.Context) {
		job := p.newJob(ctx, nil)
		p.awaitAvailable(ctx, 1)
		p.patch(ctx, job, `{"spec":{"suspend":true}}`)
		waits(ctx, 1)
		p.patch(ctx, job, `{"spec":{"suspend":false}}`)
		expectKept(ctx)
	})
})

var _ = Describe("Pods that wait, and whose owner lets go of them,", func() {
	var p scenario

	BeforeEach(func(ctx context.Context) {
		p = newScenario(ctx)
		p.rule(ctx, approved())
	})

	serve := HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle()))

	It("serve when the Deployment of a rollout is deleted with orphans, and then its ReplicaSets", func(ctx context.Context) {
		deployment := p.deployment(ctx, 3, nil)
		p.kubectl(ctx, "--namespace", p.namespace, "rollout", "restart", "deployment/web")
		Eventually(ctx, p.list).Should(And(HaveLen(4), ContainElement(expect.BeWaiting(podDelete))))
		all := p.list(ctx)
		orphaning := client.PropagationPolicy(metav1.DeletePropagationOrphan)
		Expect(p.admin.Delete(ctx, deployment, orphaning)).To(Succeed())
		Expect(p.admin.DeleteAllOf(ctx, &appsv1.ReplicaSet{}, client.InNamespace(p.namespace), orphaning)).To(Succeed())
		Eventually(ctx, p.list).Should(And(WithTransform(uids, ConsistOf(uids(all))), serve))

		p.approve(ctx)
		Consistently(ctx, p.list).WithTimeout(2 * holdWindow).Should(And(WithTransform(uids, ConsistOf(uids(all))), serve))
	})

	It("serve when they are released from their ReplicaSet", func(ctx context.Context) {
		set := p.replicaSet(ctx, 3)
		p.scale(ctx, set, 1)
		Eventually(ctx, p.list).Should(WithTransform(waitingFor(podDelete), Equal(2)))
		released := firstWaiting(p.list(ctx))
		p.ruleFor(ctx, "other", map[string]string{"app": "other"}, approved())
		p.label(ctx, released, "app", "other")
		serves := And(expect.BeAvailable(), expect.HaveNoLifecycle(), HaveField("UID", released.UID), HaveField("OwnerReferences", BeEmpty()))
		Eventually(ctx, p.seeing(released.Name)).Should(serves)

		p.approve(ctx)
		Eventually(ctx, p.list).Should(And(HaveLen(2), serve))
		Consistently(ctx, p.seeing(released.Name)).Should(serves)
		Expect(p.get(ctx, released.Name).Annotations).NotTo(HaveKey(corev1.PodDeletionCost))
	})

	It("serve when a controller deletes them that does not see yet that they are not its own", func(ctx context.Context) {
		p.pods(ctx, 2, nil)
		all := p.list(ctx)
		p.approveAll(ctx, all[:1])
		for _, pod := range all {
			for _, controller := range []string{"replicaset-controller", "statefulset-controller", "daemon-set-controller", "job-controller"} {
				Expect(p.asServiceAccount("kube-system", controller).Delete(ctx, pod)).To(expect.BeRefused(429, "the pod has no owner any more"))
			}
		}
		Consistently(ctx, p.list).Should(And(WithTransform(uids, ConsistOf(uids(all))), serve))
	})

	It("leave when the template of their ReplicaSet loses the label", func(ctx context.Context) {
		set := p.replicaSet(ctx, 3)
		p.scale(ctx, set, 1)
		Eventually(ctx, p.list).Should(WithTransform(waitingFor(podDelete), Equal(2)))
		p.patch(ctx, set, `{"spec":{"template":{"metadata":{"labels":{%q:null}}}}}`, appsv1alpha1.ControlLabelKey)
		p.approve(ctx)
		Eventually(ctx, p.list).Should(And(HaveLen(1), serve))
		Eventually(ctx, p.annotatedSets).Should(BeEmpty())
	})

	It("serve when the template loses the label, and the scale-in is taken back", func(ctx context.Context) {
		set := p.replicaSet(ctx, 3)
		before := p.list(ctx)
		p.scale(ctx, set, 1)
		Eventually(ctx, p.list).Should(WithTransform(waitingFor(podDelete), Equal(2)))
		p.patch(ctx, set, `{"spec":{"template":{"metadata":{"labels":{%q:null}}}}}`, appsv1alpha1.ControlLabelKey)
		p.scale(ctx, set, 3)
		Eventually(ctx, p.list).Should(And(WithTransform(uids, ConsistOf(uids(before))), serve))
		p.approve(ctx)
		Consistently(ctx, p.list).WithTimeout(2 * holdWindow).Should(And(WithTransform(uids, ConsistOf(uids(before))), serve))
	})

	It("keep their deletion cost, and no trace of rules, when they lose the label", func(ctx context.Context) {
		p.deployment(ctx, 4, nil)
		for _, pod := range p.list(ctx) {
			p.patch(ctx, pod, `{"metadata":{"annotations":{%q:"7"}}}`, corev1.PodDeletionCost)
		}
		p.kubectl(ctx, "--namespace", p.namespace, "rollout", "restart", "deployment/web")
		explained := appsv1alpha1.DetailAnnotationKey("web")
		var waiting []*corev1.Pod
		Eventually(ctx, p.list).Should(ContainElement(And(
			expect.BeWaiting(podDelete), HaveField("Annotations", And(HaveKey(explained), HaveKey(appsv1alpha1.PreviousDeletionCostAnnotationKey)))), &waiting))
		pod := waiting[0]
		p.kubectl(ctx, "--namespace", p.namespace, "rollout", "undo", "deployment/web")
		p.setLabels(ctx, pod, map[string]any{appsv1alpha1.ControlLabelKey: nil})
		Eventually(ctx, p.seeing(pod.Name)).Should(And(expect.BeReady(), expect.HaveNoLifecycle(), HaveField("Annotations", And(
			HaveKeyWithValue(corev1.PodDeletionCost, "7"), Not(HaveKey(explained)), Not(HaveKey(appsv1alpha1.PreviousDeletionCostAnnotationKey))))))
		Expect(p.get(ctx, pod.Name).UID).To(Equal(pod.UID))
	})
})
