package e2e_test

import (
	"context"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/expect"
)

const podDelete = appsv1alpha1.PodDeleteID

// forced makes a delete pass the rules, as kubectl delete --force --grace-period=0 does.
const forced = client.GracePeriodSeconds(0)

var _ = Describe("A delete by the ReplicaSet controller", Label(mainStories), func() {
	var p scenario
	var controller client.Client

	BeforeEach(func(ctx context.Context) {
		p = newScenario(ctx)
		controller = p.asReplicaSetController()
	})

	It("is deferred while a rule withholds it, reports why, and is carried out once the rule passes", func(ctx context.Context) {
		p.rule(ctx, approved())
		set := p.replicaSet(ctx, 2)

		By("rejecting a delete that the owner does not need, without beginning an operation")
		var refusal error
		Eventually(ctx, func(ctx context.Context) error {
			refusal = controller.Delete(ctx, p.list(ctx)[0])
			return refusal
		}).Should(expect.BeRefused(429, held(p)))
		status, _ := expect.StatusOf(refusal)
		Expect(status.Reason).To(Equal(metav1.StatusReasonTooManyRequests))
		seconds, delays := apierrors.SuggestsClientDelay(refusal)
		Expect(delays).To(BeFalse(), "the answer has Retry-After %d s", seconds)
		Consistently(ctx, p.list).Should(And(HaveLen(2), HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle()))))

		By("deferring it once the rule was evaluated")
		p.scale(ctx, set, 1)
		var waiting *corev1.Pod
		Eventually(ctx, p.list).Should(ContainElement(expect.BeWaiting(podDelete), &waiting))
		Eventually(ctx, func(ctx context.Context) error { return controller.Delete(ctx, waiting) }).
			Should(expect.BeRefused(429, held(p)))
		Consistently(ctx, p.list).Should(And(HaveLen(2), HaveEach(expect.BeAvailable())))

		By("carrying out the delete once the label is set")
		p.label(ctx, waiting, approvedLabel, "true")
		p.awaitAvailable(ctx, 1)
		Expect(uids(p.list(ctx))).NotTo(ContainElement(waiting.UID))
	})

	It("leaves no trace when it is a dry run", func(ctx context.Context) {
		p.rule(ctx, approved())
		set := p.replicaSet(ctx, 3)
		pods := p.list(ctx)
		tried, victim := pods[0], pods[1]
		Expect(controller.Delete(ctx, tried, client.DryRunAll)).To(expect.BeRefused(429))
		Expect(p.admin.Delete(ctx, tried, client.DryRunAll)).To(expect.BeRefused(429))
		Expect(p.get(ctx, tried.Name).ResourceVersion).To(Equal(tried.ResourceVersion))

		// If the dry run had been recorded, the only deferred delete that the owner needs
		// now would go to the pod of the dry run.
		p.ruleFor(ctx, "victim", map[string]string{caseLabel: "victim"}, maxUnavailable("100%"))
		p.patch(ctx, victim, `{"metadata":{"labels":{%q:"victim"},"annotations":{"controller.kubernetes.io/pod-deletion-cost":"-10"}}}`, caseLabel)
		Eventually(ctx, p.seeingRule("victim")).Should(HaveField("Status.Selected", int32(1)), "the manager has the cost before the scale")
		p.scale(ctx, set, 2)
		Eventually(ctx, p.seeing(victim.Name)).Should(expect.BeWaiting(podDelete))
		Consistently(ctx, p.seeing(tried.Name)).Should(expect.HaveNoLifecycle())
	})

	It("never exceeds the bound in a scale-in", func(ctx context.Context) {
		p.rule(ctx, minAvailable("6"), maxUnavailable("2"))
		deployment := p.deployment(ctx, 12, nil)
		observer := observe(p)
		p.scale(ctx, deployment, 6)
		p.awaitAvailable(ctx, 6)
		Expect(observer.leastAvailable()).To(Equal(6))
	})

	It("is cancelled when the owner no longer needs it", func(ctx context.Context) {
		p.rule(ctx, approved())
		p.deployment(ctx, 4, nil)
		before := p.list(ctx)
		p.kubectl(ctx, "--namespace", p.namespace, "rollout", "restart", "deployment/web")
		Eventually(ctx, p.list).Should(ContainElement(expect.BeWaiting(podDelete)))

		p.kubectl(ctx, "--namespace", p.namespace, "rollout", "undo", "deployment/web")
		Eventually(ctx, func(ctx context.Context) []*corev1.Pod {
			pods := p.list(ctx)
			for _, pod := range pods {
				if !slices.Contains(uids(before), pod.UID) && pod.DeletionTimestamp == nil {
					p.label(ctx, pod, approvedLabel, "true") // the new pods may go
				}
			}
			return pods
		}).Should(And(WithTransform(uids, ConsistOf(uids(before))), HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle()))))
	})

	DescribeTable("is not deferred",
		func(ctx context.Context, prepare func(context.Context, scenario, *corev1.Pod)) {
			p.rule(ctx, approved())
			p.replicaSet(ctx, 1)
			pod := p.list(ctx)[0]
			Expect(controller.Delete(ctx, pod)).To(expect.BeRefused(429), "as it is")
			prepare(ctx, p, pod)
			Expect(controller.Delete(ctx, pod)).To(Succeed())
		},
		Entry("when the pod is terminating already", func(ctx context.Context, p scenario, pod *corev1.Pod) {
			p.patch(ctx, pod, `{"metadata":{"finalizers":["e2e.podops.dev/keep"]}}`)
			DeferCleanup(func(ctx context.Context) { p.patch(ctx, pod, `{"metadata":{"finalizers":null}}`) })
			Expect(p.admin.Delete(ctx, pod, forced)).To(Succeed())
		}),
		Entry("when the pod has succeeded", func(ctx context.Context, p scenario, pod *corev1.Pod) {
			p.patch(ctx, pod, `{"metadata":{"annotations":{"test.podops.dev/complete-after":"1ms"}}}`)
			Eventually(ctx, p.seeing(pod.Name)).Should(HaveField("Status.Phase", corev1.PodSucceeded))
		}),
		Entry("when the pod has failed", func(ctx context.Context, p scenario, pod *corev1.Pod) {
			Expect(p.admin.Status().Patch(ctx, pod, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Failed"}}`)))).To(Succeed())
		}),
		Entry("when an operation that deletes the pod may run on it", func(ctx context.Context, p scenario, pod *corev1.Pod) {
			p.label(ctx, pod, approvedLabel, "true")
			p.begin(ctx, pod, "updater", "delete")
			Eventually(ctx, p.seeing(pod.Name)).Should(expect.BeOperable("updater"))
		}),
		Entry("when the pod is no longer controlled", func(ctx context.Context, p scenario, pod *corev1.Pod) {
			p.setLabels(ctx, pod, map[string]any{appsv1alpha1.ControlLabelKey: nil})
		}),
	)

	It("is not deferred for a mirror pod", func(ctx context.Context) {
		p.rule(ctx, approved())
		set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "web"}}
		set.Spec.Replicas = new(int32(1))
		set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
		set.Spec.Template = template()
		set.Spec.Template.Spec.NodeName = "node-1"
		set.Spec.Template.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		Expect(p.admin.Create(ctx, set)).To(Succeed())
		Eventually(ctx, p.list).Should(HaveLen(1))
		Expect(controller.Delete(ctx, p.list(ctx)[0])).To(Succeed())
	})

	It("is deferred for each pod of a collection", func(ctx context.Context) {
		p.rule(ctx, approved())
		p.replicaSet(ctx, 3)
		before := p.list(ctx)
		p.allow(ctx, "system:serviceaccount:kube-system:replicaset-controller", rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"deletecollection"},
		})
		everything := func(ctx context.Context) error {
			return controller.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(p.namespace))
		}
		Eventually(ctx, everything).Should(expect.BeRefused(429, held(p)))
		Expect(uids(p.list(ctx))).To(ConsistOf(uids(before)))

		Expect(p.admin.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(p.namespace), forced)).To(Succeed(), "a delete without grace must not be deferred")
		p.awaitAvailable(ctx, 3)
		Expect(uids(p.list(ctx))).NotTo(ContainElements(BeElementOf(uids(before))))
	})
})

// held is the message to the controller of a ReplicaSet.
func held(p scenario) string {
	return "PodOps holds this delete (normal during a rollout). Why: kubectl get podtransitionrule web -n " + p.namespace + " -o wide"
}

var _ = Describe("The deletion of a whole application", Label(mainStories), func() {
	It("is not stopped by a rule: a namespace ends while deletes of its pods are deferred", func(ctx context.Context) {
		p := newScenario(ctx)
		p.rule(ctx, approved())
		p.deployment(ctx, 3, nil)
		p.kubectl(ctx, "--namespace", p.namespace, "rollout", "restart", "deployment/web")
		Eventually(ctx, p.list).Should(ContainElement(expect.BeWaiting(podDelete)))

		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}
		Expect(p.admin.Delete(ctx, namespace)).To(Succeed())
		Eventually(ctx, func(ctx context.Context) error {
			return p.admin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)
		}).Should(expect.BeRefused(404))
	})

	DescribeTable("is not stopped by a rule: a Deployment under minAvailable is deleted with its pods",
		func(ctx context.Context, propagation metav1.DeletionPropagation) {
			p := newScenario(ctx)
			p.rule(ctx, minAvailable("100%"))
			deployment := p.deployment(ctx, 3, nil)
			Expect(p.admin.Delete(ctx, deployment, client.PropagationPolicy(propagation))).To(Succeed())
			Eventually(ctx, p.list).Should(BeEmpty())
		},
		Entry("in the foreground", metav1.DeletePropagationForeground),
		Entry("in the background", metav1.DeletePropagationBackground),
	)
})

// allow grants rights in the namespace of the scenario.
func (p scenario) allow(ctx context.Context, user string, rules ...rbacv1.PolicyRule) {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Namespace: p.namespace, Name: "e2e"}
	Expect(p.admin.Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules})).To(Succeed())
	Expect(p.admin.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})).To(Succeed())
}
