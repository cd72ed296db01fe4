package e2e_test

import (
	"context"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/expect"
)

const (
	// withdrawal is the time within which nothing is left of a request that was withdrawn.
	withdrawal = 5 * time.Second

	// lapse is the time after which PodOps withdraws a request that is held and not repeated, with time for PodOps to
	// write.
	lapse = 20 * time.Second
)

var _ = Describe("kubectl podops delete", Label(mainStories), func() {
	var p scenario

	BeforeEach(func(ctx context.Context) { p = newScenario(ctx) })

	It("deletes three pods of a Deployment one after the other, as its rule permits", func(ctx context.Context) {
		p.rule(ctx, maxUnavailable("25%"))
		p.deployment(ctx, 4, nil)
		before := p.list(ctx)
		observer := observe(p)
		names := []string{before[0].Name, before[1].Name, before[2].Name}
		out, complaints, code := p.podops(ctx, append([]string{"delete", "pod", "-n", p.namespace, "--timeout=90s"}, names...)...)
		Expect(code).To(Equal(0), out+complaints)
		Expect(out).To(And(ContainSubstring("held: web/max-unavailable withholds it (NoRoom: "), ContainSubstring("3 pods are gone after")))
		p.awaitAvailable(ctx, 4)
		Expect(uids(p.list(ctx))).To(ContainElement(before[3].UID))
		Expect(observer.leastAvailable()).To(Equal(3))
		Expect(observer.count()).To(Equal(4))
		Expect(observer.seenPods()).To(Equal(7))
	})

	It("deletes each pod of a StatefulSet once", func(ctx context.Context) {
		p.rule(ctx, maxUnavailable("1"))
		p.newStatefulSet(ctx, 3)
		observer := observe(p)
		out, complaints, code := p.podops(ctx, "delete", "-n", p.namespace, "-l", "app=web", "--timeout=90s")
		Expect(code).To(Equal(0), out+complaints)
		p.awaitAvailable(ctx, 3)
		Expect(observer.leastAvailable()).To(Equal(2))
		Expect(observer.seenPods()).To(Equal(6))
	})

	It("deletes a pod that is not under PodOps", func(ctx context.Context) {
		p.pod(ctx, "alone", func(pod *corev1.Pod) { delete(pod.Labels, appsv1alpha1.ControlLabelKey) })
		out, complaints, code := p.podops(ctx, "delete", "pod/alone", "-n", p.namespace, "--timeout=60s")
		Expect(code).To(Equal(0), out+complaints)
		Expect(p.list(ctx)).To(BeEmpty())
	})

	It("withdraws its request on Ctrl-C, and the next rollout completes", func(ctx context.Context) {
		p.rule(ctx, approved())
		p.deployment(ctx, 2, nil)
		before := p.list(ctx)[0]
		session := p.startPlugin("delete", "pod", before.Name)
		Eventually(ctx, session.Out).Should(gbytes.Say("held: web/approved withholds it"))
		Eventually(ctx, p.seeing(before.Name)).Should(And(expect.BeWaiting(podDelete), haveRecord("Client")))
		session.Interrupt()
		Eventually(ctx, session).WithTimeout(10 * time.Second).Should(gexec.Exit(1))
		Expect(session.Out).To(gbytes.Say(before.Name + "  held   withdrawn  web/approved withholds it"))
		Expect(session.Err).To(gbytes.Say("1 of 1 pods are left: interrupted"))

		Eventually(ctx, p.seeing(before.Name)).WithTimeout(withdrawal).Should(beAsBefore(before))
		Consistently(ctx, p.seeing(before.Name)).Should(And(beAsBefore(before), expect.BeAvailable()))
		p.approveAll(ctx, p.list(ctx))
		p.kubectl(ctx, "--namespace", p.namespace, "rollout", "restart", "deployment/web")
		p.kubectl(ctx, "--namespace", p.namespace, "rollout", "status", "deployment/web", "--timeout=60s")
	})

	It("reports when its request lapses if the user may not label pods", func(ctx context.Context) {
		const limited = "limited"
		p.allow(ctx, limited, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "delete"}})
		p.rule(ctx, approved())
		p.pods(ctx, 1, nil)
		before := p.get(ctx, "web-00")
		out, complaints, code := p.podops(ctx, "delete", "pod", "web-00", "-n", p.namespace, "--timeout=6s", "--as", limited)
		Expect(code).To(Equal(1), out+complaints)
		Expect(out).To(MatchRegexp(`lapses within (1[5-9]|[2-9][0-9])s \(you may not label the pod\)`), "three intervals: a busy machine has longer ones")
		Expect(complaints).To(ContainSubstring("1 of 1 pods are left: the time of --timeout has passed"))
		Expect(p.get(ctx, "web-00")).To(expect.BeWaiting(podDelete))
		Eventually(ctx, p.seeing("web-00")).WithTimeout(lapse).Should(And(beAsBefore(before), expect.BeAvailable()))
	})
})

var _ = Describe("kubectl podops drain", Label(mainStories), func() {
	const node = "node-1"
	var p scenario

	// Only the node takes new pods at first.
	BeforeEach(func(ctx context.Context) {
		p = newScenario(ctx)
		nodes := &corev1.NodeList{}
		Expect(p.admin.List(ctx, nodes)).To(Succeed())
		for _, other := range nodes.Items {
			DeferCleanup(func(ctx context.Context) { p.kubectl(ctx, "uncordon", other.Name) })
			if other.Name != node {
				p.kubectl(ctx, "cordon", other.Name)
			}
		}
	})
	uncordonOthers := func(ctx context.Context) {
		p.kubectl(ctx, "uncordon", "-l", "kubernetes.io/hostname!="+node)
	}
	drain := func(ctx context.Context, args ...string) (stdout, stderr string, code int) {
		return p.podops(ctx, append([]string{"drain", node, "--pod-selector", "e2e.podops.dev/scenario=" + p.namespace}, args...)...)
	}
	selected := func(ctx context.Context) {
		for _, pod := range p.list(ctx) {
			p.setLabels(ctx, pod, map[string]any{"e2e.podops.dev/scenario": p.namespace})
		}
	}

	It("evicts each pod of a StatefulSet once, under its rule", func(ctx context.Context) {
		p.rule(ctx, maxUnavailable("25%"))
		p.newStatefulSet(ctx, 3)
		selected(ctx)
		uncordonOthers(ctx)
		observer := observe(p)

		By("showing what would hold the pods")
		out, complaints, code := drain(ctx, "--dry-run")
		Expect(code).To(Equal(0), out+complaints)
		Expect(out).To(And(ContainSubstring("pods to evict: 3"), ContainSubstring("permitted"), ContainSubstring("web/max-unavailable: withholds it")))
		Consistently(ctx, p.list).Should(HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle())))

		out, complaints, code = drain(ctx, "--timeout=90s")
		Expect(code).To(Equal(0), out+complaints)
		Expect(strings.Count(out, " terminating\n")).To(Equal(3), out)
		p.awaitAvailable(ctx, 3)
		Expect(p.list(ctx)).NotTo(ContainElement(HaveField("Spec.NodeName", node)))
		Expect(observer.leastAvailable()).To(Equal(2))
		Expect(observer.seenPods()).To(Equal(6))
		for _, event := range p.events(ctx) {
			Expect(event.Reason).NotTo(BeElementOf("DeleteFinished", "DeletedUnguarded"))
		}
	})

	It("repeats what a PodDisruptionBudget rejects", func(ctx context.Context) {
		p.deployment(ctx, 3, nil)
		selected(ctx)
		for _, pod := range p.list(ctx) {
			p.setLabels(ctx, pod, map[string]any{appsv1alpha1.ControlLabelKey: nil})
		}
		p.disruptionBudget(ctx, "web", "1")
		uncordonOthers(ctx)
		out, complaints, code := drain(ctx, "--timeout=90s")
		Expect(code).To(Equal(0), out+complaints)
		Expect(out).To(ContainSubstring("held: The disruption budget web "))
	})

	It("withdraws its requests when its time has passed, and leaves the node cordoned", func(ctx context.Context) {
		p.rule(ctx, approved())
		p.newStatefulSet(ctx, 2)
		selected(ctx)
		before := p.list(ctx)
		out, complaints, code := drain(ctx, "--timeout=6s")
		Expect(code).To(Equal(1), out+complaints)
		Expect(strings.Count(out, "withdrawn  web/approved withholds it")).To(Equal(2), out)
		Expect(complaints).To(ContainSubstring("kubectl uncordon " + node))
		for _, pod := range before {
			Eventually(ctx, p.seeing(pod.Name)).WithTimeout(withdrawal).Should(And(beAsBefore(pod), expect.BeAvailable()))
		}
		live, _ := p.kubectl(ctx, "get", "node", node, "-o", "jsonpath={.spec.unschedulable}")
		Expect(live).To(Equal("true"))
	})

	It("ends at once on a second Ctrl-C", func(ctx context.Context) {
		p.rule(ctx, approved())
		p.newStatefulSet(ctx, 1)
		selected(ctx)
		session := p.startPlugin("drain", node, "--pod-selector", "e2e.podops.dev/scenario="+p.namespace)
		Eventually(ctx, session.Out).Should(gbytes.Say("held: "))
		Expect(session.Command.Process.Signal(os.Interrupt)).To(Succeed())
		Eventually(ctx, session.Err).Should(gbytes.Say("withdrawing the requests"))
		session.Interrupt()
		Eventually(ctx, session).WithTimeout(2 * time.Second).Should(gexec.Exit())
	})
})

// beAsBefore matches a pod that has nothing of a request any more.
func beAsBefore(before *corev1.Pod) OmegaMatcher {
	return And(
		expect.HaveNoLifecycle(), haveRecord(""), HaveField("UID", before.UID), HaveField("Annotations", Equal(before.Annotations)),
		HaveField("Finalizers", Equal(before.Finalizers)), HaveField("Labels", Equal(before.Labels)),
	)
}
