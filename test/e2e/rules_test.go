package e2e_test

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/test/expect"
)

// caseLabel distinguishes the pods of a scenario, for rules that select one pod each.
const caseLabel = "e2e.podops.dev/case"

// ruleCase is a pod, and a rule that selects only this pod.
type ruleCase struct {
	rule func(*appsv1alpha1.TransitionRule) // changes to the rule approved()
	pod  func(*corev1.Pod)
	held bool
}

// ruleCases returns the cases by name; none of their pods is approved.
func ruleCases() map[string]ruleCase {
	goldOnly := func(rule *appsv1alpha1.TransitionRule) {
		rule.Filter = &appsv1alpha1.TransitionRuleFilter{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}}
	}
	skip := func(names string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Annotations = map[string]string{appsv1alpha1.SkipRulesAnnotationKey: `{"skipRules":["` + names + `"]}`}
		}
	}
	return map[string]ruleCase{
		"plain":            {held: true},
		"disabled":         {rule: func(rule *appsv1alpha1.TransitionRule) { rule.Disabled = true }},
		"dry-run":          {rule: func(rule *appsv1alpha1.TransitionRule) { rule.Enforcement = appsv1alpha1.EnforcementDryRun }},
		"warn":             {rule: func(rule *appsv1alpha1.TransitionRule) { rule.Enforcement = appsv1alpha1.EnforcementWarn }},
		"condition-met":    {rule: func(rule *appsv1alpha1.TransitionRule) { rule.Conditions = []string{"restart", "update"} }, held: true},
		"condition-not":    {rule: func(rule *appsv1alpha1.TransitionRule) { rule.Conditions = []string{"restart"} }},
		"filter-met":       {rule: goldOnly, pod: func(pod *corev1.Pod) { pod.Labels["tier"] = "gold" }, held: true},
		"filter-not":       {rule: goldOnly},
		"skipped":          {pod: skip("approved")},
		"skips-another":    {pod: skip("another"), held: true},
		"already-approved": {pod: func(pod *corev1.Pod) { pod.Labels[approvedLabel] = "true" }},
	}
}

var _ = Describe("A rule", func() {
	var p scenario
	BeforeEach(func(ctx context.Context) { p = newScenario(ctx) })

	// arrive brings every pod to a stage, where its rules are evaluated.
	arrive := func(ctx context.Context, stage appsv1alpha1.TransitionStage) {
		for _, pod := range p.list(ctx) {
			p.begin(ctx, pod, "updater", "update")
		}
		if stage == appsv1alpha1.StagePreCheck {
			return
		}
		Eventually(ctx, p.list).Should(HaveEach(expect.BeOperable("updater")))
		for _, pod := range p.list(ctx) {
			p.setLabels(ctx, pod, map[string]any{operating + "updater": nil})
		}
	}

	DescribeTable("withholds the pods that it applies to, in either stage", Label(mainStories),
		func(ctx context.Context, stage appsv1alpha1.TransitionStage, held, passed OmegaMatcher) {
			heldPods := map[string]bool{}
			for name, tc := range ruleCases() {
				p.pod(ctx, name, func(pod *corev1.Pod) {
					pod.Labels[caseLabel] = name
					if tc.pod != nil {
						tc.pod(pod)
					}
				})
				heldPods[name] = tc.held
			}
			p.awaitAvailable(ctx, len(heldPods)) // a new pod has PostCheck rules, too
			for name, tc := range ruleCases() {
				rule := approved()
				rule.Stage = stage
				if tc.rule != nil {
					tc.rule(&rule)
				}
				p.ruleFor(ctx, name, map[string]string{caseLabel: name}, rule)
			}
			arrive(ctx, stage)
			asExpected := HaveEach(Or(
				And(Satisfy(func(pod *corev1.Pod) bool { return heldPods[pod.Name] }), held),
				And(Satisfy(func(pod *corev1.Pod) bool { return !heldPods[pod.Name] }), passed)))
			Eventually(ctx, p.list).Should(asExpected)
			Consistently(ctx, p.list).Should(asExpected)

			By("reporting in events the pods that are withheld, and the pods that would be")
			for name, reason := range map[string]string{"plain": "Withheld", "warn": "WouldWithhold"} {
				Eventually(ctx, func(ctx context.Context) ([]string, error) { return reasons(ctx, p, name) }).Should(ContainElement(reason))
			}
			for _, name := range []string{"disabled", "dry-run", "skipped"} {
				Expect(reasons(ctx, p, name)).NotTo(ContainElement(BeElementOf("Withheld", "WouldWithhold")), name)
			}

			By("passing them once they are approved")
			p.approve(ctx)
			Eventually(ctx, p.list).Should(HaveEach(passed))
		},
		Entry("PreCheck", appsv1alpha1.StagePreCheck,
			And(expect.BeWaiting("updater"), expect.BeAvailable()), expect.BeOperable("updater")),
		Entry("PostCheck", appsv1alpha1.StagePostCheck,
			And(expect.HaveLabel(appsv1alpha1.PostCheckLabelPrefix+"/updater"), expect.HaveGate(corev1.ConditionFalse)),
			And(expect.BeAvailable(), expect.HaveNoLifecycle())),
	)

	DescribeTable("applies its current version to pods that wait already",
		func(ctx context.Context, change func(context.Context, *appsv1alpha1.PodTransitionRule)) {
			rule := p.rule(ctx, approved())
			p.pods(ctx, 2, nil)
			arrive(ctx, appsv1alpha1.StagePreCheck)
			Eventually(ctx, p.seeingRule("web")).Should(HaveField("Status.Blocked", HaveLen(2)))
			change(ctx, rule)
			Eventually(ctx, p.list).WithTimeout(patience + podindex.RetiredFor).Should(HaveEach(expect.BeOperable("updater")))
		},
		Entry("edited to require less", func(ctx context.Context, rule *appsv1alpha1.PodTransitionRule) {
			p.patch(ctx, rule, `{"spec":{"rules":[{"name":"approved","labelCheck":{"requires":{"matchLabels":{"app":"web"}}}}]}}`)
		}),
		Entry("edited to select other pods", func(ctx context.Context, rule *appsv1alpha1.PodTransitionRule) {
			p.patch(ctx, rule, `{"spec":{"selector":{"matchLabels":{"app":"other"}}}}`)
		}),
		Entry("deleted", func(ctx context.Context, rule *appsv1alpha1.PodTransitionRule) {
			Expect(p.admin.Delete(ctx, rule)).To(Succeed())
		}),
	)

	It("keeps its bound while it is deleted and created again, and warns", func(ctx context.Context) {
		rule := p.rule(ctx, maxUnavailable("2"))
		p.pods(ctx, 8, nil)
		observer := observe(p)
		arrive(ctx, appsv1alpha1.StagePreCheck)
		Eventually(ctx, p.list).Should(WithTransform(operable("updater"), Equal(2)))

		Eventually(ctx, p.seeingRule("web")).Should(And(
			HaveField("Status.Waiting", BeEquivalentTo(6)), HaveField("Status.Available", BeEquivalentTo(6))))
		_, warnings := p.kubectl(ctx, "--namespace", p.namespace, "delete", "podtransitionrule", "web")
		Expect(warnings).To(ContainSubstring(`6 of 8 desired pods are available and 6 wait; they are held for 30s more`))
		Consistently(ctx, p.list).Should(WithTransform(operable("updater"), Equal(2)))
		p.rule(ctx, rule.Spec.Rules...)
		Eventually(ctx, p.seeingRule("web")).Should(HaveField("Status.Waiting", BeEquivalentTo(6)))
		Consistently(ctx, p.list).Should(WithTransform(operable("updater"), Equal(2)))
		Expect(observer.leastAvailable()).To(Equal(6))
	})

	It("does not count passes under an earlier version", func(ctx context.Context) {
		rule := p.rule(ctx, approved())
		p.ruleNamed(ctx, "other", appsv1alpha1.TransitionRule{Name: "ticket", LabelCheck: &appsv1alpha1.LabelCheck{
			Requires: &metav1.LabelSelector{MatchLabels: map[string]string{"ticket": "1"}}}})
		p.pods(ctx, 1, func(pod *corev1.Pod) { pod.Labels[approvedLabel] = "true" })
		arrive(ctx, appsv1alpha1.StagePreCheck)
		Eventually(ctx, p.seeingRule("other")).Should(HaveField("Status.Blocked", HaveLen(1)))
		Expect(p.seeingRule("web")(ctx)).To(HaveField("Status.Blocked", BeEmpty()), "the first rule passes")

		p.patch(ctx, rule, `{"spec":{"rules":[{"name":"approved","labelCheck":{"requires":{"matchLabels":{%q:"twice"}}}}]}}`, approvedLabel)
		p.awaitObserved(ctx, rule)
		p.label(ctx, p.list(ctx)[0], "ticket", "1")
		Eventually(ctx, p.seeingRule("web")).Should(HaveField("Status.Blocked", HaveLen(1)))
		Consistently(ctx, p.list).Should(HaveEach(expect.BeWaiting("updater")))
	})

	It("applies together with every other rule for the same pods, with both bounds", func(ctx context.Context) {
		p.rule(ctx, maxUnavailable("3"))
		both := maxUnavailable("2")
		both.AvailablePolicy.MinAvailableValue = intOrString("5")
		p.ruleNamed(ctx, "both", both)
		p.pods(ctx, 6, nil)
		arrive(ctx, appsv1alpha1.StagePreCheck)
		Eventually(ctx, p.list).Should(ContainElement(expect.BeOperable("updater")))
		Consistently(ctx, p.list).Should(ContainElements(manyTimes(5, expect.BeWaiting("updater"))...))
		Eventually(ctx, p.seeingRule("both")).Should(HaveField("Status.Blocked", ContainElement(HaveField("Message",
			ContainSubstring("5 of 6 pods are available; at least 5 must be (minAvailable 5 of 6 desired)")))))
	})

	It("with a maximum of 0 lets rollouts pass that surge, and no delete", func(ctx context.Context) {
		p.rule(ctx, maxUnavailable("0"))
		p.deployment(ctx, 3, func(deployment *appsv1.Deployment) {
			deployment.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: intOrString("1"), MaxUnavailable: intOrString("0")}
		})
		p.kubectl(ctx, "--namespace", p.namespace, "rollout", "restart", "deployment/web")
		p.kubectl(ctx, "--namespace", p.namespace, "rollout", "status", "deployment/web", "--timeout=1m")
		Eventually(ctx, p.list).Should(HaveLen(3))
		p.awaitAvailable(ctx, 3)
		Expect(p.admin.Delete(ctx, p.list(ctx)[0])).To(expect.BeRefused(429, "at least 3 must be (maxUnavailable 0, at most 0 of 3 desired pods)"))
		Eventually(ctx, p.seeingRule("web")).Should(HaveField("Status.Conditions", ContainElement(
			And(HaveField("Type", appsv1alpha1.ConditionStalled), HaveField("Status", metav1.ConditionFalse), HaveField("Reason", appsv1alpha1.ReasonPassesWithSurge)))))
	})

	It("reports its counts, and that it can never pass", func(ctx context.Context) {
		p.rule(ctx, minAvailable("100%"))
		p.pods(ctx, 3, nil)
		arrive(ctx, appsv1alpha1.StagePreCheck)
		Eventually(ctx, p.seeingRule("web")).Should(And(
			HaveField("Status.ObservedGeneration", int64(1)),
			HaveField("Status.Selected", int32(3)), HaveField("Status.Desired", int32(3)),
			HaveField("Status.Available", int32(3)), HaveField("Status.Waiting", int32(3)),
			HaveField("Status.Targets", Equal([]string{"web-00", "web-01", "web-02"})),
			HaveField("Status.Conditions", ContainElements(
				And(HaveField("Type", appsv1alpha1.ConditionReady), HaveField("Status", metav1.ConditionTrue)),
				And(HaveField("Type", appsv1alpha1.ConditionStalled), HaveField("Status", metav1.ConditionTrue), HaveField("Reason", appsv1alpha1.ReasonNeverPasses)),
			))))
		Consistently(ctx, p.list).Should(HaveEach(And(expect.BeWaiting("updater"), expect.BeAvailable())))

		By("printing it")
		short, _ := p.kubectl(ctx, "--namespace", p.namespace, "get", "ptr")
		Expect(columns(short)).To(Equal([][]string{
			{"NAME", "DESIRED", "AVAILABLE", "WAITING", "OFF-TRAFFIC", "BLOCKED", "BY", "AGE"},
			{"web", "3", "3", "3", "0", "min-available", "(NoRoom)"},
		}))
		wide, _ := p.kubectl(ctx, "--namespace", p.namespace, "get", "podops", "-o", "wide")
		Expect(wide).To(And(ContainSubstring("WHY"), ContainSubstring("3 of 3 pods are available; at least 3 must be")))
	})
})

// ruleFor creates a PodTransitionRule that selects pods with the labels.
func (p scenario) ruleFor(ctx context.Context, name string, labels map[string]string, rules ...appsv1alpha1.TransitionRule) {
	GinkgoHelper()
	Expect(p.admin.Create(ctx, &appsv1alpha1.PodTransitionRule{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: name},
		Spec:       appsv1alpha1.PodTransitionRuleSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Rules: rules},
	})).To(Succeed())
}

// awaitObserved waits until the status of a rule is of the version that was written last. A manager receives
// rules and pods by different watches, so that a later change of a pod may reach it before an edit of a rule.
func (p scenario) awaitObserved(ctx context.Context, rule *appsv1alpha1.PodTransitionRule) {
	GinkgoHelper()
	Eventually(ctx, p.seeingRule(rule.Name)).Should(HaveField("Status.ObservedGeneration", rule.Generation))
}

// columns splits the output of kubectl, without the age, which changes.
func columns(text string) [][]string {
	var rows [][]string
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		fields := strings.Fields(line)
		if i > 0 {
			fields = fields[:len(fields)-1]
		}
		rows = append(rows, fields)
	}
	return rows
}

// operable returns a function that counts the pods on which the id may operate.
func operable(id string) func([]*corev1.Pod) int {
	return func(pods []*corev1.Pod) int {
		count := 0
		for _, pod := range pods {
			if allowed, err := expect.BeOperable(id).Match(pod); err == nil && allowed {
				count++
			}
		}
		return count
	}
}
