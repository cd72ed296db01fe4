package e2e_test

import (
	"context"
	"fmt"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/expect"
	"github.com/podops-dev/podops/test/managerprocess"
)

var _ = Describe("A workload with pods with and without the label", func() {
	var p scenario

	BeforeEach(func(ctx context.Context) { p = newScenario(ctx) })

	// first has the controller of ReplicaSets delete a pod before others.
	first := func(ctx context.Context, pod *corev1.Pod) {
		GinkgoHelper()
		p.patch(ctx, pod, `{"metadata":{"annotations":{%q:"-1"}}}`, corev1.PodDeletionCost)
	}
	ready := HaveEach(expect.BeReady())

	It("is scaled in where one pod among others without the label has it", Label(mainStories), func(ctx context.Context) {
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "web"}}
		deployment.Spec = appsv1.DeploymentSpec{
			Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: template(),
		}
		delete(deployment.Spec.Template.Labels, appsv1alpha1.ControlLabelKey)
		Expect(p.admin.Create(ctx, deployment)).To(Succeed())
		Eventually(ctx, p.list).Should(And(HaveLen(3), ready))
		victim := p.list(ctx)[0]
		p.label(ctx, victim, appsv1alpha1.ControlLabelKey, appsv1alpha1.ControlLabelValue)
		first(ctx, victim)
		Eventually(ctx, p.seeing(victim.Name)).Should(expect.BeAvailable())
		p.scale(ctx, deployment, 2)
		Eventually(ctx, p.list).Should(And(HaveLen(2), ready, WithTransform(uids, Not(ContainElement(victim.UID)))))
	})

	It("is scaled in where one pod among others with the label has none", Label(mainStories), func(ctx context.Context) {
		deployment := p.deployment(ctx, 4, nil)
		stranger, victim := p.list(ctx)[0], p.list(ctx)[1]
		p.setLabels(ctx, stranger, map[string]any{appsv1alpha1.ControlLabelKey: nil})
		first(ctx, victim)
		p.scale(ctx, deployment, 3)
		Eventually(ctx, p.list).Should(And(HaveLen(3), ready,
			WithTransform(uids, ContainElement(stranger.UID)), WithTransform(uids, Not(ContainElement(victim.UID)))))

		By("one pod of the two, which its controller chooses")
		p.scale(ctx, deployment, 1)
		Eventually(ctx, p.list).Should(And(HaveLen(1), ready))
	})

	It("is rolled out under a rule of availability", func(ctx context.Context) {
		p.rule(ctx, maxUnavailable("1"))
		p.deployment(ctx, 4, nil)
		before := p.list(ctx)
		p.setLabels(ctx, before[0], map[string]any{appsv1alpha1.ControlLabelKey: nil})
		Eventually(ctx, p.seeing(before[0].Name)).Should(expect.BeReady())
		p.kubectl(ctx, "--namespace", p.namespace, "rollout", "restart", "deployment/web")
		Eventually(ctx, p.list).WithTimeout(3 * patience).Should(And(HaveLen(4),
			WithTransform(uids, Not(ContainElements(BeElementOf(uids(before))))), expect.All(And(expect.BeAvailable(), expect.HaveNoLifecycle()))))
	})
})

var _ = Describe("Pods without the label", func() {
	var p scenario
	var set *appsv1.ReplicaSet

	BeforeEach(func(ctx context.Context) {
		p = newScenario(ctx)
		set = &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "free"}}
		set.Spec = appsv1.ReplicaSetSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: template(),
		}
		delete(set.Spec.Template.Labels, appsv1alpha1.ControlLabelKey)
		Expect(p.admin.Create(ctx, set)).To(Succeed())
		Eventually(ctx, p.list).Should(And(HaveLen(2), HaveEach(expect.BeReady())))
	})

	// expectFree expects that pods without the label are created, start, are changed, scaled, evicted and deleted.
	expectFree := func(ctx context.Context) {
		GinkgoHelper()
		scaled := func(replicas string) {
			GinkgoHelper()
			patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":`+replicas+`}}`))
			Expect(p.admin.SubResource("scale").Patch(ctx, set.DeepCopy(), patch)).To(Succeed())
		}
		scaled("3")
		Eventually(ctx, p.list).Should(And(HaveLen(3), HaveEach(expect.BeReady())))
		p.label(ctx, p.list(ctx)[0], "example.com/note", "x")
		Expect(p.evict(ctx, p.list(ctx)[0])).To(Succeed())
		Eventually(ctx, p.list).Should(And(HaveLen(3), HaveEach(expect.BeReady())))
		Expect(p.admin.Delete(ctx, p.list(ctx)[0])).To(Succeed())
		Eventually(ctx, p.list).Should(And(HaveLen(3), HaveEach(expect.BeReady())))
		scaled("1")
		Eventually(ctx, p.list).Should(And(HaveLen(1), HaveEach(expect.BeReady())))
	}

	It("do not depend on the rights of the manager", func(ctx context.Context) {
		binding := &rbacv1.ClusterRoleBinding{}
		Expect(p.admin.Get(ctx, client.ObjectKey{Name: appsv1alpha1.ManagerName}, binding)).To(Succeed())
		subjects := binding.Subjects
		bind := func(ctx context.Context, subjects []rbacv1.Subject) {
			GinkgoHelper()
			binding.Subjects = subjects
			Expect(p.admin.Update(ctx, binding)).To(Succeed())
		}
		asManager := p.asServiceAccount(managerprocess.Namespace, managerprocess.Account)
		lists := func(ctx context.Context) error { return asManager.List(ctx, &corev1.PodList{}) }
		for _, m := range managers.running() {
			m.complaints = append(m.complaints, "forbidden")
		}
		DeferCleanup(func(ctx context.Context) {
			bind(ctx, subjects)
			Eventually(ctx, lists).Should(Succeed())
			managers.stopAll() // its watches may have ended
			managers.start(ctx)
		})
		bind(ctx, nil)
		Eventually(ctx, lists).Should(expect.BeRefused(403))
		expectFree(ctx)
	})

	It("do not depend on the memory of the manager", Label(longStories), func(ctx context.Context) {
		DeferCleanup(func(ctx context.Context) {
			managers.stopAll()
			managers.start(ctx)
		})
		rule := &appsv1alpha1.PodTransitionRule{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "web"}}
		rule.Spec.Selector, rule.Spec.Rules = &metav1.LabelSelector{MatchLabels: labels()}, []appsv1alpha1.TransitionRule{approved()}
		create := func(ctx context.Context) error { return p.admin.Create(ctx, rule.DeepCopy(), client.DryRunAll) }
		// The manager rejects work from three quarters of its limit on, and is slow far below what it needs.
		isFull := false
		for limit := 18; limit >= 12 && !isFull; limit -= 2 {
			managers.stopAll()
			GinkgoT().Setenv("GOMEMLIMIT", fmt.Sprintf("%dMiB", limit))
			managers.start(ctx)
			Expect(os.Unsetenv("GOMEMLIMIT")).To(Succeed())
			isFull, _ = expect.BeRefused(429, "the manager is close to its memory limit").Match(create(ctx))
		}
		Expect(isFull).To(BeTrue())
		expectFree(ctx)
		Expect(create(ctx)).To(expect.BeRefused(429, "the manager is close to its memory limit"))
	})
})
