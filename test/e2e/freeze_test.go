package e2e_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/test/expect"
)

var _ = Describe("kubectl podops freeze", func() {
	frozen := func(message string) gomegatypes.GomegaMatcher {
		return HaveField("Status.Blocked", ContainElement(HaveField("Message", ContainSubstring(message))))
	}

	It("gives no new permit until thaw, or for a time, and lets pods go on that are off traffic", func(ctx context.Context) {
		p := newScenario(ctx)
		p.rule(ctx, maxUnavailable("1"))
		p.pods(ctx, 3, nil)
		p.begin(ctx, p.get(ctx, "web-00"), "updater", "update")
		Eventually(ctx, p.seeing("web-00")).Should(expect.BeOperable("updater"))

		_, complaints, code := p.podops(ctx, "freeze", "-n", p.namespace)
		Expect(code).To(Equal(1))
		Expect(complaints).To(ContainSubstring("--reason is required"))
		out, complaints, code := p.podops(ctx, "freeze", "-n", p.namespace, "--reason", "INC-4711")
		Expect(code).To(Equal(0), complaints)
		Expect(out).To(And(HavePrefix("1 namespace frozen by "), ContainSubstring(": INC-4711. Pods that are off traffic go on")))

		By("ending the operation of the pod that is off traffic")
		p.begin(ctx, p.get(ctx, "web-01"), "updater", "update")
		Eventually(ctx, p.seeingRule("freeze")).Should(frozen("INC-4711"))
		p.setLabels(ctx, p.get(ctx, "web-00"), map[string]any{appsv1alpha1.OperatingLabelPrefix + "/updater": nil})
		Eventually(ctx, p.seeing("web-00")).Should(And(expect.BeAvailable(), expect.HaveNoLifecycle()))
		Consistently(ctx, p.seeing("web-01")).Should(expect.BeWaiting("updater"))
		explained, _ := p.plugin(ctx, "explain", "pod/web-01")
		Expect(explained).To(ContainSubstring("INC-4711"))

		By("thawing")
		out, complaints, code = p.podops(ctx, "thaw", "-n", p.namespace)
		Expect(code).To(Equal(0), complaints)
		Expect(out).To(Equal("1 namespace thawed\n"))
		Eventually(ctx, p.seeing("web-01")).Should(expect.BeOperable("updater"))
		Expect(p.listRules(ctx)).To(HaveLen(1))
		p.setLabels(ctx, p.get(ctx, "web-01"), map[string]any{appsv1alpha1.OperatingLabelPrefix + "/updater": nil})
		Eventually(ctx, p.seeing("web-01")).Should(And(expect.BeAvailable(), expect.HaveNoLifecycle()))

		By("ending by itself")
		_, complaints, code = p.podops(ctx, "freeze", "-n", p.namespace, "--reason", "maintenance", "--for", "5s")
		Expect(code).To(Equal(0), complaints)
		p.begin(ctx, p.get(ctx, "web-02"), "updater", "update")
		Eventually(ctx, p.seeingRule("freeze")).Should(frozen("UTC: maintenance"))
		Eventually(ctx, p.seeing("web-02")).Should(expect.BeOperable("updater"))
	})

	It("fails while no manager takes it over, and holds once one does", func(ctx context.Context) {
		p := newScenario(ctx)
		p.rule(ctx, maxUnavailable("1"))
		p.pods(ctx, 1, nil)
		managers.stopAll()
		out, complaints, code := p.podops(ctx, "freeze", "-A", "--reason", "INC-4711")
		managers.start(ctx)
		DeferCleanup(func(ctx context.Context) {
			p.podops(ctx, "thaw", "-A")
			Eventually(ctx, p.seeingRule("web")).ShouldNot(HaveField("Status.Conditions", ContainElement(HaveField("Type", "Frozen"))))
		})
		Expect(code).To(Equal(1), out)
		Expect(complaints).To(ContainSubstring("no manager has taken it over within 10s: kubectl podops doctor reports whether one leads"))

		By("starting a manager, which takes over what is set")
		Eventually(ctx, p.seeingRule("web")).Should(HaveField("Status.Conditions", ContainElement(HaveField("Type", "Frozen"))))
		p.begin(ctx, p.get(ctx, "web-00"), "updater", "update")
		for _, scope := range [][]string{{"-n", p.namespace}, {"-A"}} {
			_, complaints, code := p.podops(ctx, append([]string{"freeze", "--reason", "INC-4711"}, scope...)...)
			Expect(code).To(Equal(0), complaints)
		}
		Consistently(ctx, p.seeing("web-00")).Should(expect.BeWaiting("updater"))

		By("freezing a namespace without pods")
		_, complaints, code = p.podops(ctx, "freeze", "-n", newScenario(ctx).namespace, "--reason", "INC-4711")
		Expect(code).To(Equal(0), complaints)
	})

	DescribeTable("stops the rollouts of all namespaces, which end after thaw", func(ctx context.Context, fleets, replicas int) {
		stories, workloads := make([]scenario, fleets), make([]*appsv1.Deployment, fleets)
		for i := range stories {
			stories[i] = newScenario(ctx)
			stories[i].rule(ctx, approved())
			workloads[i] = stories[i].deployment(ctx, int32(replicas), nil)
		}
		old := map[types.UID]bool{}
		for _, p := range stories {
			for _, pod := range p.list(ctx) {
				old[pod.UID] = true
			}
		}
		// permitted returns the old pods with a permit, or that are gone.
		permitted := func(ctx context.Context) int {
			left := 0
			for _, p := range stories {
				for _, pod := range p.list(ctx) {
					if old[pod.UID] && !deferreddelete.IsPermitted(pod) {
						left++
					}
				}
			}
			return len(old) - left
		}
		for i, p := range stories {
			p.label(ctx, p.list(ctx)[0], approvedLabel, "true")
			p.patch(ctx, workloads[i], `{"spec":{"template":{"metadata":{"annotations":{"revision":"2"}}}}}`)
		}
		Eventually(ctx, permitted).Should(Equal(fleets))

		DeferCleanup(func(ctx context.Context) { stories[0].podops(ctx, "thaw", "-A") })
		out, complaints, code := stories[0].podops(ctx, "freeze", "-A", "--reason", "INC-4711")
		Expect(code).To(Equal(0), complaints)
		Expect(out).To(HavePrefix("all namespaces frozen by "))
		after := time.After(time.Second) // from then on the freeze holds
		for _, p := range stories {
			p.approve(ctx)
		}
		<-after
		held := permitted(ctx)
		Consistently(ctx, permitted).Should(Equal(held))
		Expect(held).To(BeNumerically("<", fleets*replicas))
		Eventually(ctx, stories[0].seeingRule("web")).Should(HaveField("Status.Conditions", ContainElement(And(
			HaveField("Type", "Frozen"), HaveField("Message", ContainSubstring("INC-4711"))))))

		By("creating a namespace meanwhile, whose pods no rule selects")
		late := newScenario(ctx)
		late.pods(ctx, 1, nil)
		late.begin(ctx, late.get(ctx, "web-00"), "updater", "update")
		Consistently(ctx, late.seeing("web-00")).Should(expect.BeWaiting("updater"))
		Eventually(func() string { explained, _ := late.plugin(ctx, "explain", "pod/web-00"); return explained }).Should(And(
			ContainSubstring("INC-4711 (Frozen)"), ContainSubstring("kubectl podops thaw -A"), ContainSubstring("docs/explain.md#frozen")))

		By("thawing")
		out, complaints, code = stories[0].podops(ctx, "thaw", "-A")
		Expect(code).To(Equal(0), complaints)
		Expect(out).To(Equal("all namespaces thawed\n"))
		Eventually(ctx, late.seeing("web-00")).Should(expect.BeOperable("updater"))
		Eventually(ctx, stories[0].seeingRule("web")).ShouldNot(HaveField("Status.Conditions", ContainElement(HaveField("Type", "Frozen"))))
		Eventually(ctx, permitted).WithTimeout(4 * patience).Should(Equal(fleets * replicas))
	},
		Entry("of 12", 12, 6),
		Entry("of 100", Label("long"), 100, 2),
	)

	It("names the user who sets it, and no other user", func(ctx context.Context) {
		p := newScenario(ctx)
		forged := &appsv1alpha1.PodTransitionRule{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "freeze", Labels: map[string]string{"app.kubernetes.io/managed-by": "kubectl-podops"}},
			Spec:       appsv1alpha1.PodTransitionRuleSpec{Selector: &metav1.LabelSelector{MatchLabels: labels()}, Rules: []appsv1alpha1.TransitionRule{regoRule("freeze", "allow := false")}},
		}
		forged.Spec.Rules[0].Rego.Parameters = &apiextensionsv1.JSON{Raw: []byte(`{"message":"frozen by alice: INC-1","until":0}`)}
		bob := p.as("bob", []string{"system:masters"})
		Expect(bob.Create(ctx, forged)).To(MatchError(ContainSubstring("begins with the user who sets it: frozen by bob")))
		patch := `{"metadata":{"annotations":{"` + appsv1alpha1.FreezeAnnotationKey + `":"- frozen by alice: INC-1"}}}`
		manager := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "podops-system"}}
		Expect(bob.Patch(ctx, manager, client.RawPatch(types.MergePatchType, []byte(patch)))).To(MatchError(ContainSubstring("- frozen by bob: ...")))

		By("a freeze for a time, of the cluster")
		_, complaints, code := p.podops(ctx, "freeze", "-A", "--reason", "maintenance", "--for", "5s")
		Expect(code).To(Equal(0), complaints)
		p.pods(ctx, 1, nil)
		p.begin(ctx, p.get(ctx, "web-00"), "updater", "update")
		Eventually(ctx, p.seeing("web-00")).Should(expect.BeOperable("updater"))
		_, complaints, code = p.podops(ctx, "thaw", "-A")
		Expect(code).To(Equal(0), complaints)
	})
})
