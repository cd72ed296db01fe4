package e2e_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/view/doctor"
	"github.com/podops-dev/podops/test/expect"
	"github.com/podops-dev/podops/test/managerprocess"
)

// templateName is the name of the adapter that authors copy, of its ServiceAccount and of its
// TrafficAdapter.
const templateName = "adapter-template"

var _ = Describe("An adapter in a program of its own", func() {
	It("has its finalizer on pods that are created while the program is away", func(ctx context.Context) {
		p := newScenario(ctx)
		p.registerTemplate(ctx)
		Eventually(ctx, p.condition(appsv1alpha1.ConditionRunning)).Should(beCondition(metav1.ConditionFalse, appsv1alpha1.ReasonLeaseNotFound))
		web, solo := p.balanced(ctx, "web"), p.balanced(ctx, "solo")
		labelled := func(app string) func(*corev1.Pod) {
			return func(pod *corev1.Pod) { pod.Labels["app"] = app }
		}

		By("creating pods before the program has ever run")
		p.awaitExpected(ctx, web)
		p.awaitExpected(ctx, solo)
		for app := range map[string]bool{"web": true, "solo": true} {
			created := p.pod(ctx, app+"-0", labelled(app))
			Expect(created.Annotations[appsv1alpha1.AvailableConditionsAnnotationKey]).To(ContainSubstring(resourceconsist.GenerateLifecycleFinalizer(app)))
			Eventually(ctx, p.seeing(created.Name)).Should(HaveField("Status.PodIP", Not(BeEmpty())))
		}
		Consistently(ctx, p.list).Should(HaveEach(Not(expect.BeAvailable())))

		By("deleting a Service while the program is away")
		Expect(p.admin.Delete(ctx, solo)).To(Succeed())
		Eventually(ctx, p.seeing("solo-0")).Should(expect.BeAvailable())
		Consistently(ctx, p.seeing("web-0")).ShouldNot(expect.BeAvailable())

		By("starting the program")
		stop := p.startTemplate(ctx)
		Eventually(ctx, p.seeing("web-0")).Should(And(expect.BeAvailable(), HaveField("Finalizers", ConsistOf(resourceconsist.GenerateLifecycleFinalizer("web")))))
		Eventually(ctx, p.condition(appsv1alpha1.ConditionRunning)).Should(beCondition(metav1.ConditionTrue, appsv1alpha1.ReasonLeaseRenewed))

		By("stopping it, and creating another pod")
		stop()
		p.pod(ctx, "web-1", nil)
		Eventually(ctx, p.condition(appsv1alpha1.ConditionRunning)).Should(beCondition(metav1.ConditionFalse, appsv1alpha1.ReasonLeaseExpired))
		Eventually(ctx, p.seeing("web-1")).Should(HaveField("Status.PodIP", Not(BeEmpty())))
		Consistently(ctx, p.seeing("web-1")).ShouldNot(expect.BeAvailable())
		Expect(p.get(ctx, "web-0")).To(expect.BeAvailable())

		By("deleting the Service, which its clean finalizer keeps")
		Expect(p.admin.Delete(ctx, web)).To(Succeed())
		Eventually(ctx, p.seeing("web-1")).Should(expect.BeAvailable())
		Expect(p.admin.Get(ctx, client.ObjectKeyFromObject(web), web)).To(Succeed())
		Expect(web.DeletionTimestamp).NotTo(BeNil())

		By("starting the program again, which cleans up")
		p.startTemplate(ctx)
		Eventually(ctx, func(ctx context.Context) error {
			return p.admin.Get(ctx, client.ObjectKeyFromObject(web), &corev1.Service{})
		}).Should(MatchError(ContainSubstring("not found")))
		Expect(p.get(ctx, "web-0").Finalizers).To(BeEmpty())
		p.awaitAvailable(ctx, 3)
	})

	It("has no finalizer on pods that lose the control label", func(ctx context.Context) {
		p := newScenario(ctx)
		p.registerTemplate(ctx)
		p.awaitExpected(ctx, p.balanced(ctx, "web"))
		stop := p.startTemplate(ctx)
		p.pods(ctx, 2, nil)
		protected := HaveField("Finalizers", ConsistOf(resourceconsist.GenerateLifecycleFinalizer("web")))
		Eventually(ctx, p.list).Should(HaveEach(protected))
		label := func(pod, label string) {
			p.kubectl(ctx, "--namespace", p.namespace, "label", "pod", pod, label)
		}

		By("taking the label off while the program runs")
		label("web-00", appsv1alpha1.ControlLabelKey+"-")
		Expect(p.get(ctx, "web-00").Finalizers).To(BeEmpty())
		Consistently(ctx, p.seeing("web-00")).Should(HaveField("Finalizers", BeEmpty()))

		By("taking it off, and deleting the pod, while the program is away")
		stop()
		label("web-01", appsv1alpha1.ControlLabelKey+"-")
		Expect(p.admin.Delete(ctx, p.get(ctx, "web-01"))).To(Succeed())
		Eventually(ctx, func(ctx context.Context) error {
			_, err := p.seeing("web-01")(ctx)
			return err
		}).Should(Satisfy(apierrors.IsNotFound))

		By("starting the program, and labelling the pod again")
		p.startTemplate(ctx)
		label("web-00", appsv1alpha1.ControlLabelKey+"="+appsv1alpha1.ControlLabelValue)
		Eventually(ctx, p.seeing("web-00")).Should(And(expect.BeAvailable(), protected))
	})

	It("lets pods go by kubectl podops unstick after it was retired", Label(longStories), func(ctx context.Context) {
		p := newScenario(ctx)
		p.registerTemplate(ctx)
		web := p.balanced(ctx, "web")
		p.awaitExpected(ctx, web)
		stop := p.startTemplate(ctx)
		p.pods(ctx, 1, nil)
		finalizer := resourceconsist.GenerateLifecycleFinalizer("web")
		Eventually(ctx, p.list).Should(HaveEach(HaveField("Finalizers", ConsistOf(finalizer))))

		By("retiring it as docs/resourceconsist.md has it, while its program is away")
		stop()
		p.kubectl(ctx, "delete", "trafficadapter", templateName)
		p.kubectl(ctx, "--namespace", p.namespace, "patch", "service", "web", "--type=merge", "--patch", `{"metadata":{"finalizers":null}}`)
		p.kubectl(ctx, "--namespace", p.namespace, "label", "pod", "web-00", appsv1alpha1.ToDeleteLabelKey+"=true")
		Eventually(ctx, func(ctx context.Context) []doctor.Finding { return p.diagnosed(ctx).Findings }).
			WithTimeout(2 * patience).Should(ContainElement(And(
			HaveField("Check", doctor.ID("finalizer-orphaned")), HaveField("Object", "pod "+p.namespace+"/web-00"))))
		Expect(p.get(ctx, "web-00").Finalizers).To(ConsistOf(finalizer))

		By("letting the pod go, and creating the next")
		_, complaints, code := p.podops(ctx, "unstick", "-n", p.namespace, "pod/web-00", "--yes", "--reason", "the adapter was retired")
		Expect(code).To(Equal(0), complaints)
		Eventually(ctx, p.list).Should(BeEmpty())
		p.pod(ctx, "web-01", nil)
		Eventually(ctx, p.seeing("web-01")).Should(And(expect.BeAvailable(), HaveField("Finalizers", BeEmpty())))
	})

	It("is removed with PodOps when its name is given", func(ctx context.Context) {
		p := newScenario(ctx)
		p.registerTemplate(ctx)
		web := p.balanced(ctx, "web")
		p.awaitExpected(ctx, web)
		stop := p.startTemplate(ctx)
		p.pods(ctx, 1, nil)
		managers.stopAll()
		DeferCleanup(func(ctx context.Context) {
			p.kubectl(ctx, "apply", "--server-side", "--force-conflicts", "-k", filepath.Join("..", "..", "config", "local"))
			managers.start(ctx)
		})

		By("refusing while the program runs")
		_, complaints, code := p.podops(ctx, "uninstall", "--keep-manifests", "--adapters", templateName)
		Expect(code).To(Equal(1))
		Expect(complaints).To(ContainSubstring("the program of TrafficAdapter " + templateName + " runs"))
		Expect(p.get(ctx, "web-00")).To(expect.BeAvailable())

		By("releasing after its end")
		stop()
		_, complaints, code = p.podops(ctx, "uninstall", "--keep-manifests", "--adapters", templateName)
		Expect(code).To(Equal(0), complaints)
		Expect(p.get(ctx, "web-00").Finalizers).To(BeEmpty())
		Expect(p.get(ctx, "web-00").Annotations).NotTo(HaveKey(appsv1alpha1.AvailableConditionsAnnotationKey))
		Expect(p.admin.Get(ctx, client.ObjectKeyFromObject(web), web)).To(Succeed())
		Expect(web.Finalizers).To(BeEmpty())
	})
})

// registerTemplate applies the rights and the registration of the template for the scenario.
func (p scenario) registerTemplate(ctx context.Context) {
	GinkgoHelper()
	folder := filepath.Join("..", "..", "pkg", "resourceconsist", "adaptertest", "template")
	files := []string{"-f", filepath.Join(folder, "rights.yaml"), "-f", filepath.Join(folder, "registration.yaml")}
	p.kubectl(ctx, append([]string{"apply", "--server-side"}, files...)...)
	DeferCleanup(func(ctx context.Context) {
		p.kubectl(ctx, append([]string{"delete", "--ignore-not-found"}, files...)...)
	})
	Eventually(ctx, p.condition(appsv1alpha1.ConditionReady)).Should(beCondition(metav1.ConditionTrue, appsv1alpha1.ReasonRegistered))
}

// startTemplate starts the program of the template with the rights of its ServiceAccount. It returns the
// function that stops it, with the scenario at the latest, and fails if it has logged errors before.
func (p scenario) startTemplate(ctx context.Context) (stop func()) {
	GinkgoHelper()
	folder := GinkgoT().TempDir()
	kubeconfig, probe := filepath.Join(folder, "kubeconfig"), freeAddress()
	Expect(managerprocess.WriteKubeconfigOf(ctx, p.config, client.ObjectKey{Namespace: templateName, Name: templateName}, kubeconfig)).To(Succeed())
	program, err := managerprocess.Start(managerprocess.Options{
		Command: []string{
			requireProgram(templateName), "--kubeconfig", kubeconfig, "--namespace", templateName,
			"--metrics-bind-address", "0", "--health-probe-bind-address", probe,
		},
		Log: filepath.Join(folder, "log"), Probe: probe,
	})
	Expect(err).NotTo(HaveOccurred())
	stop = sync.OnceFunc(func() {
		Expect(program.HasEnded()).To(BeFalse(), program.Tail)
		// A reconcile that the signal interrupts reports the cancelled request.
		lines := strings.Split(program.Log(), "\n")
		Expect(program.Signal(syscall.SIGTERM)).To(Succeed())
		Eventually(program.Ended()).Should(BeClosed())
		Expect(slices.DeleteFunc(lines, harmless.MatchString)).NotTo(ContainElement(MatchRegexp(`"level":"error"|panic|forbidden`)))
		Expect(program.Log()).NotTo(ContainSubstring("panic"))
	})
	DeferCleanup(stop)
	Eventually(ctx, program.Ready).Should(Succeed(), program.Tail)
	return stop
}

// balanced creates a Service that the template has, for the pods with the label app of its name.
func (p scenario) balanced(ctx context.Context, name string) *corev1.Service {
	GinkgoHelper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.namespace, Name: name,
			Labels:      map[string]string{appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue},
			Annotations: map[string]string{templateName + ".example.com/load-balancer": "true"},
		},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	Expect(p.admin.Create(ctx, service)).To(Succeed())
	return service
}

// awaitExpected waits until admission has seen a Service.
func (p scenario) awaitExpected(ctx context.Context, service *corev1.Service) {
	GinkgoHelper()
	Eventually(ctx, func(ctx context.Context) (map[string]string, error) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "probe", Labels: labels()}, Spec: template().Spec}
		pod.Labels["app"] = service.Spec.Selector["app"]
		err := p.admin.Create(ctx, pod, client.DryRunAll)
		return pod.Annotations, err
	}).Should(HaveKey(appsv1alpha1.AvailableConditionsAnnotationKey))
}

// condition returns a function for Eventually that reads a condition of the TrafficAdapter.
func (p scenario) condition(kind string) func(context.Context) (*metav1.Condition, error) {
	return func(ctx context.Context) (*metav1.Condition, error) {
		adapter := &appsv1alpha1.TrafficAdapter{}
		err := p.admin.Get(ctx, client.ObjectKey{Name: templateName}, adapter)
		return meta.FindStatusCondition(adapter.Status.Conditions, kind), err
	}
}

// beCondition matches a condition with a status and a reason.
func beCondition(status metav1.ConditionStatus, reason string) gomegatypes.GomegaMatcher {
	return And(Not(BeNil()), HaveField("Status", status), HaveField("Reason", reason))
}
