package e2e_test

import (
	"context"
	"fmt"
	"os/exec"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/expect"
	"github.com/podops-dev/podops/test/managerprocess"
	"github.com/podops-dev/podops/test/observed"
)

var _ = Describe("An uninstall", Label(mainStories), func() {
	const (
		id       = "updater"
		phaseKey = "e2e.podops.dev/phase"
		good     = "e2e.podops.dev/good"
	)
	lb := serviceController{employer: "lb"}

	It("leaves 50 pods of every phase in service, without a manager", func(ctx context.Context) {
		p := newScenario(ctx)
		Expect(p.admin.Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: lb.employer},
			Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}},
		})).To(Succeed())
		p.ruleFor(ctx, "waiting", map[string]string{phaseKey: "waiting"}, approved())
		p.ruleFor(ctx, "post-check", map[string]string{phaseKey: "post-check"}, inPostCheck(appsv1alpha1.TransitionRule{
			Name: "good", LabelCheck: &appsv1alpha1.LabelCheck{Requires: &metav1.LabelSelector{MatchLabels: map[string]string{good: "true"}}},
		}))
		phases := map[string]int{"serving": 8, "waiting": 9, "preparing": 10, "operating": 8, "post-check": 8, "completing": 8}
		names := map[string][]string{}
		for phase, count := range phases {
			for i := range count {
				name := fmt.Sprintf("%s-%d", phase, i)
				names[phase] = append(names[phase], name)
				p.pod(ctx, name, func(pod *corev1.Pod) {
					pod.Labels[phaseKey] = phase
					pod.Finalizers = []string{lb.finalizer()}
					lb.announce(pod)
				})
			}
		}
		p.awaitAvailable(ctx, 51)
		budget := &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "web", Annotations: map[string]string{"note": "x"}},
			Spec: policyv1.PodDisruptionBudgetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, MinAvailable: intOrString("0"),
			},
		}
		Expect(p.admin.Create(ctx, budget)).To(Succeed())

		By("bringing the pods into their phases")
		finish := map[string]any{appsv1alpha1.OperatingLabelPrefix + "/" + id: nil}
		trafficOff := func(name string) { p.patch(ctx, p.get(ctx, name), `{"metadata":{"finalizers":null}}`) }
		for phase := range phases {
			for _, name := range names[phase] {
				if phase == "serving" {
					continue
				}
				p.begin(ctx, p.get(ctx, name), id, "update")
				if phase == "waiting" {
					Eventually(ctx, p.seeing(name)).Should(expect.BeWaiting(id))
					continue
				}
				Eventually(ctx, p.seeing(name)).Should(expect.HaveGate(corev1.ConditionFalse))
				if phase == "preparing" {
					continue
				}
				trafficOff(name)
				Eventually(ctx, p.seeing(name)).Should(expect.BeOperable(id))
				switch phase {
				case "post-check":
					p.setLabels(ctx, p.get(ctx, name), finish)
					Eventually(ctx, p.seeing(name)).Should(expect.HaveLabel(appsv1alpha1.PostCheckLabelPrefix + "/" + id))
				case "completing":
					p.setLabels(ctx, p.get(ctx, name), finish)
					Eventually(ctx, p.seeing(name)).Should(expect.HaveLabel(appsv1alpha1.CompleteLabelPrefix + "/" + id))
				}
			}
		}
		By("deleting a pod whose finalizer no controller will remove")
		terminating := names["preparing"][0]
		Expect(p.admin.Delete(ctx, p.get(ctx, terminating), forced)).To(Succeed())

		Expect(p.admin.Get(ctx, client.ObjectKeyFromObject(budget), budget)).To(Succeed())
		Expect(budget.Annotations).To(HaveKey(appsv1alpha1.PermitsAnnotationKey))

		By("killing the managers")
		for _, m := range managers.running() {
			m.Kill()
		}
		DeferCleanup(func(ctx context.Context) { reinstall(ctx, p.cluster) })

		By("uninstalling from outside")
		out, _, code := p.podops(ctx, "uninstall", "--all-finalizers")
		GinkgoWriter.Println(out)
		Expect(code).To(Equal(0))
		// Pods of earlier scenarios may be among them.
		Expect(out).To(MatchRegexp(`released ([5-9]\d|\d{3,}) pods`))

		Eventually(ctx, p.list).Should(And(HaveLen(50), expect.All(And(
			expect.BeReady(), expect.HaveGate(corev1.ConditionTrue), expect.HaveNoLifecycle()))))
		for _, pod := range p.list(ctx) {
			Expect(expect.LifecycleLabels(pod)).To(BeEmpty())
			Expect(pod.Finalizers).To(BeEmpty())
			for key := range pod.Annotations {
				Expect(key).NotTo(ContainSubstring("kusionstack.io"))
			}
		}
		Expect(p.admin.Get(ctx, client.ObjectKeyFromObject(budget), budget)).To(Succeed())
		Expect(budget.Annotations).To(Equal(map[string]string{"note": "x"}))
		for _, kind := range []string{
			"mutatingwebhookconfigurations", "validatingwebhookconfigurations", "validatingadmissionpolicies", "validatingadmissionpolicybindings",
			"clusterroles", "clusterrolebindings", "crds", "namespaces",
		} {
			names, _ := p.kubectl(ctx, "get", kind, "-o", "name")
			Expect(names).NotTo(Or(ContainSubstring("podops"), ContainSubstring("apps.kusionstack.io")), "remaining objects of kind %s", kind)
		}

		By("running it again, without effect")
		out, _, code = p.podops(ctx, "uninstall", "--all-finalizers")
		Expect(code).To(Equal(0))
		Expect(out).To(And(ContainSubstring("released 0 pods"), ContainSubstring("deleted 0 objects")))
		Expect(observed.WebhookConfigurations(ctx, p.admin)).To(Succeed())
		Expect(p.admin.Delete(ctx, p.get(ctx, names["waiting"][0]), client.DryRunAll)).To(Succeed())

		By("installing again, which ends when the webhooks answer")
		installing := exec.CommandContext(ctx, requireProgram("kubectl-podops"), "install", "--kubeconfig", p.kubeconfig)
		installing.Stdout, installing.Stderr = GinkgoWriter, GinkgoWriter
		Expect(installing.Start()).To(Succeed())
		// The webhook configurations are applied last. A manager that starts before it has its rights logs errors.
		Eventually(ctx, managers.urls).ShouldNot(BeEmpty())
		Expect(managerprocess.WriteKubeconfig(ctx, p.config, managers.kubeconfig)).To(Succeed())
		managers.start(ctx)
		Expect(installing.Wait()).To(Succeed())
		_, complaints, code := p.podops(ctx, "install")
		Expect(code).To(Equal(1), "the webhooks are those of a manager outside of the cluster")
		Expect(complaints).To(ContainSubstring("a manager outside of it"))

		By("requiring prometheus-operator for a ServiceMonitor, before anything is applied")
		out, complaints, code = p.podops(ctx, "install", "--components", "service-monitor")
		Expect(code).To(Equal(1))
		Expect(complaints).To(ContainSubstring("nothing was changed: this cluster does not have the kind ServiceMonitor of monitoring.coreos.com/v1"))
		Expect(out).NotTo(ContainSubstring("applied"))
	})
})
