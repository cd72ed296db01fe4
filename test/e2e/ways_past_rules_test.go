package e2e_test

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/expect"
)

var _ = Describe("A way past rules", func() {
	var p scenario

	BeforeEach(func(ctx context.Context) { p = newScenario(ctx) })

	serve := HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle()))

	It("is not an operation of a type that the rule does not have", func(ctx context.Context) {
		rule := approved()
		rule.Conditions = []string{appsv1alpha1.DeleteOperationType}
		p.rule(ctx, rule)
		p.pods(ctx, 1, nil)
		Expect(p.refusedDelete(ctx, "web-00")).To(ContainSubstring("web/approved withholds it"))
		p.setLabels(ctx, p.get(ctx, "web-00"), map[string]any{appsv1alpha1.UndoOperationTypeLabelPrefix + "/" + podDelete: appsv1alpha1.DeleteOperationType})
		Eventually(ctx, p.seeing("web-00")).Should(expect.HaveNoLifecycle())
		p.begin(ctx, p.get(ctx, "web-00"), "x", "anything")
		Eventually(ctx, p.seeing("web-00")).Should(expect.BeOperable("x"))

		Expect(p.refusedDelete(ctx, "web-00")).To(ContainSubstring("web/approved withholds it"))
		Expect(p.evict(ctx, p.get(ctx, "web-00"))).To(expect.BeRefused(429, "web/approved withholds it"))
		Consistently(ctx, p.list).Should(HaveLen(1))
		Expect(p.eventReasons(ctx)).NotTo(ContainElement("DeletedUnguarded"))

		By("passing the rule")
		p.approve(ctx)
		Eventually(ctx, func(ctx context.Context) error {
			return client.IgnoreNotFound(p.admin.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "web-00"}}))
		}).Should(Succeed())
		Eventually(ctx, p.list).Should(BeEmpty())
	})

	It("is not the right to the status of ReplicaSets or pods", func(ctx context.Context) {
		set := p.replicaSet(ctx, 3)
		before := p.list(ctx)
		p.allow(ctx, "jane", rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"replicasets/status"}, Verbs: []string{"patch"}},
			rbacv1.PolicyRule{Resources: []string{"pods/status"}, APIGroups: []string{""}, Verbs: []string{"patch"}})
		jane := p.as("jane", nil)
		demand := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+appsv1alpha1.DesiredReplicasAnnotationKey+`":"0","`+
			appsv1alpha1.LowestReplicasAnnotationKey+`":"0"}}}`))
		Eventually(ctx, func(ctx context.Context) error { return jane.Status().Patch(ctx, set.DeepCopy(), demand) }).Should(Succeed())
		label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+appsv1alpha1.ToDeleteLabelKey+`":"true"}}}`))
		Expect(jane.Status().Patch(ctx, before[0].DeepCopy(), label)).To(expect.BeRefused(403, appsv1alpha1.ToDeleteLabelKey))
		Consistently(ctx, p.list).WithTimeout(2 * holdWindow).Should(And(WithTransform(uids, ConsistOf(uids(before))), serve))
		Eventually(ctx, p.annotatedSets).Should(BeEmpty())
	})

	It("is not the label to-delete in a template, whose pods would be created and deleted without end", func(ctx context.Context) {
		set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "web"}}
		set.Spec = appsv1.ReplicaSetSpec{
			Replicas: new(int32(5)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: template(),
		}
		set.Spec.Template.Labels[appsv1alpha1.ToDeleteLabelKey] = "true"
		Expect(p.admin.Create(ctx, set)).To(Succeed())
		p.awaitAvailable(ctx, 5)
		before := p.list(ctx)
		Consistently(ctx, p.list).WithTimeout(2 * holdWindow).Should(And(WithTransform(uids, ConsistOf(uids(before))), serve))
	})
})

var _ = Describe("A rollout that waits", func() {
	It("repeats no event about its scale-down", func(ctx context.Context) {
		p := newScenario(ctx)
		p.rule(ctx, approved())
		deployment := p.deployment(ctx, 3, func(deployment *appsv1.Deployment) { deployment.Spec.ProgressDeadlineSeconds = new(int32(2)) })
		p.kubectl(ctx, "--namespace", p.namespace, "rollout", "restart", "deployment/web")
		Eventually(ctx, p.list).Should(And(HaveLen(4), ContainElement(expect.BeWaiting(podDelete))))
		Eventually(ctx, func(ctx context.Context) ([]appsv1.DeploymentCondition, error) {
			err := p.admin.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)
			return deployment.Status.Conditions, err
		}).Should(ContainElement(HaveField("Reason", "ProgressDeadlineExceeded")))
		scaled := func() int {
			list := &eventsv1.EventList{}
			Expect(p.admin.List(ctx, list, client.InNamespace(p.namespace))).To(Succeed())
			count := 0
			for _, event := range list.Items {
				if event.Reason == "ScalingReplicaSet" && strings.HasPrefix(event.Note, "Scaled down") {
					count += max(1, int(event.DeprecatedCount))
				}
			}
			return count
		}
		settled := awaitSettled(ctx, scaled)
		Consistently(ctx, scaled).WithTimeout(4 * holdWindow).Should(Equal(settled))
		AddReportEntry("events of scale-downs that did not happen", settled)
	})
})

var _ = Describe("A ReplicaSet of a Deployment that a client scales out", func() {
	It("has the pods of its Deployment again once any of its pods may go", func(ctx context.Context) {
		p := newScenario(ctx)
		p.rule(ctx, approved())
		p.deployment(ctx, 2, func(deployment *appsv1.Deployment) {
			deployment.Spec.Template.Annotations = map[string]string{"test.podops.dev/start-delay": "1s"}
		})
		before := p.list(ctx)
		set := metav1.GetControllerOf(before[0]).Name
		p.kubectl(ctx, "--namespace", p.namespace, "scale", "replicaset/"+set, "--replicas=3")
		Eventually(ctx, func(ctx context.Context) (int32, error) {
			found := &appsv1.ReplicaSet{}
			err := p.admin.Get(ctx, client.ObjectKey{Namespace: p.namespace, Name: set}, found)
			return *found.Spec.Replicas, err
		}).Should(BeEquivalentTo(2))
		p.approveAll(ctx, before)
		Eventually(ctx, p.list).WithTimeout(2 * patience).Should(And(HaveLen(2), HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle()))))
	})
})

var _ = Describe("A pod that a drain has prepared", func() {
	It("serves again when its PodDisruptionBudget forbids the eviction, and goes once another pod has recovered", func(ctx context.Context) {
		p := newScenario(ctx)
		selector, lb := "e2e.podops.dev/scenario="+p.namespace, serviceController{employer: "lb"}
		p.deployment(ctx, 3, func(deployment *appsv1.Deployment) {
			deployment.Spec.Template.Labels["e2e.podops.dev/scenario"] = p.namespace
			deployment.Spec.Template.Finalizers = []string{lb.finalizer()}
		})
		DeferCleanup(func(ctx context.Context) {
			for _, pod := range p.list(ctx) {
				p.patch(ctx, pod, `{"metadata":{"finalizers":null}}`)
			}
		})
		budget := p.disruptionBudget(ctx, "web", "1")
		drained := p.list(ctx)[0]
		var others []*corev1.Pod
		Expect(p.list(ctx)).To(ContainElement(HaveField("Spec.NodeName", Not(Equal(drained.Spec.NodeName))), &others))
		other := others[0]
		DeferCleanup(func(ctx context.Context) { p.kubectl(ctx, "uncordon", drained.Spec.NodeName) })
		ended := make(chan string, 1)
		go func() {
			defer GinkgoRecover()
			out, complaints, err := p.tryKubectl(ctx, "drain", drained.Spec.NodeName, "--pod-selector", selector, "--timeout=240s")
			Expect(err).NotTo(HaveOccurred(), complaints)
			ended <- out + complaints
		}()
		Eventually(ctx, p.seeing(drained.Name)).Should(And(expect.BePermitted(podDelete), expect.HaveGate(corev1.ConditionFalse)))

		By("failing another pod before the load balancer has drained the first")
		p.patch(ctx, other, `{"metadata":{"annotations":{"test.podops.dev/not-ready":"true"}}}`)
		Eventually(ctx, p.seeing(other.Name)).ShouldNot(expect.BeReady())
		Eventually(ctx, func(ctx context.Context) (int32, error) {
			err := p.admin.Get(ctx, client.ObjectKeyFromObject(budget), budget)
			return budget.Status.CurrentHealthy, err
		}).Should(BeEquivalentTo(1))
		p.patch(ctx, drained, `{"metadata":{"finalizers":null}}`)
		serves := And(expect.BeAvailable(), expect.HaveNoLifecycle(), HaveField("UID", drained.UID))
		Eventually(ctx, p.seeing(drained.Name)).WithTimeout(2 * patience).Should(serves)
		Consistently(ctx, p.seeing(drained.Name)).WithTimeout(2 * holdWindow).Should(And(expect.BeAvailable(), HaveField("UID", drained.UID)))
		Expect(ended).NotTo(Receive())

		By("letting the other pod recover, and the load balancer drain each pod")
		act(p, lb.wants)
		p.patch(ctx, other, `{"metadata":{"annotations":{"test.podops.dev/not-ready":"false"}}}`)
		Eventually(ctx, ended).WithTimeout(3 * patience).Should(Receive(ContainSubstring("drained")))
		p.awaitAvailable(ctx, 3)
		Expect(uids(p.list(ctx))).NotTo(ContainElement(drained.UID))
	})
})
