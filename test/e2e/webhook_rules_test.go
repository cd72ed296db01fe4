package e2e_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/approvals"
	"github.com/podops-dev/podops/test/expect"
)

var _ = Describe("A webhook rule", Label(callStories), func() {
	const pollSeconds = 60

	var p scenario
	var service approvalService
	BeforeEach(func(ctx context.Context) {
		p = newScenario(ctx)
		service = openApprovalService(nil, approvals.Options{})
	})

	// waiting begins an update of some pods under rules.
	waiting := func(ctx context.Context, count int, rules ...appsv1alpha1.TransitionRule) {
		GinkgoHelper()
		p.rule(ctx, rules...)
		p.pods(ctx, count, nil)
		p.beginAll(ctx)
	}
	// blocked waits until all of some pods are blocked, with a reason and a next attempt.
	blocked := func(ctx context.Context, count int, reason string, texts ...string) {
		GinkgoHelper()
		matchers := []types.GomegaMatcher{HaveField("Kind", "webhook"), HaveField("Reason", reason), HaveField("NextCheck", Not(BeNil()))}
		for _, text := range texts {
			matchers = append(matchers, HaveField("Message", ContainSubstring(text)))
		}
		Eventually(ctx, p.seeingRule("web")).Should(HaveField("Status.Blocked", And(HaveLen(count), HaveEach(And(matchers...)))))
		Consistently(ctx, p.list).Should(ContainElements(manyTimes(count, And(expect.BeWaiting("updater"), expect.BeAvailable()))...))
	}

	DescribeTable("approves each pod of a Deployment of 12 that rolls: approvals match permits one for one", Label(mainStories),
		func(ctx context.Context, rule func(approvalService) appsv1alpha1.TransitionRule, paths ...string) {
			const replicas = 12
			p.rule(ctx, rule(service), maxUnavailable("25%"))
			p.deployment(ctx, replicas, nil)
			before := p.list(ctx)
			passages, observer := recordPassages(p), observe(p)
			p.kubectl(ctx, "--namespace", p.namespace, "rollout", "restart", "deployment/web")
			Eventually(ctx, p.list).WithTimeout(3 * patience).Should(And(
				HaveLen(replicas), expect.All(And(expect.BeAvailable(), expect.HaveNoLifecycle())),
				WithTransform(uids, Not(ContainElements(BeElementOf(uids(before)))))))
			given := service.Approvals(p.namespace)
			AddReportEntry("figures", fmt.Sprintf("%d approvals in %d calls and %d requests", len(given), len(service.Posts(p.namespace)), len(service.Log(p.namespace))))
			Expect(passages.in(appsv1alpha1.StagePreCheck)).To(HaveLen(replicas))
			Expect(len(given)).To(BeNumerically(">=", replicas), listed(given))
			Expect(passages.unapproved(appsv1alpha1.StagePreCheck, given)).To(BeEmpty())
			passages.expectOneForOne(appsv1alpha1.StagePreCheck, given)
			service.expectOnePostPerTrace(p)
			Expect(service.Log(p.namespace)).To(HaveEach(And(HaveField("Credentials", false), HaveField("Rule", "web/approval"))))
			Expect(pathsOf(service.Log(p.namespace))).To(Equal(paths))
			Expect(service.Log(p.namespace)).To(ContainElement(HaveField("Pods", ContainElement(HaveField("Cause", "Rollout")))))
			Expect(replicas - observer.leastAvailable()).To(BeNumerically("<=", 3))
		},
		Entry("at once", func(d approvalService) appsv1alpha1.TransitionRule { return d.callsOnce("/approve") }, "/approve"),
		Entry("at once, over HTTPS", func(d approvalService) appsv1alpha1.TransitionRule { return d.callsOverTLS("/approve") }, "/approve"),
		Entry("one with every poll", func(d approvalService) appsv1alpha1.TransitionRule { return d.polls("/poll", pollSeconds) }, "/poll", "/result"),
		Entry("one with every poll, over HTTPS", func(d approvalService) appsv1alpha1.TransitionRule { return d.pollsSecurely("/poll", pollSeconds) }, "/poll", "/result"),
	)

	It("approves each pod before and after an update in place: approvals match permits one for one", Label(mainStories), func(ctx context.Context) {
		const replicas = 12
		p.rule(ctx, service.callsOnce("/approve"), inPostCheck(service.polls("/poll?each=2", pollSeconds)), maxUnavailable("25%"))
		p.deployment(ctx, replicas, nil)
		passages, observer := recordPassages(p), observe(p)
		stop := act(p, imageUpdater{id: "updater", image: "registry.example.com/web:v2"}.wants)
		p.awaitImage(ctx, replicas, "registry.example.com/web:v2")
		stop()
		given := service.Approvals(p.namespace)
		Expect(given).To(HaveLen(2 * replicas))
		for _, stage := range []appsv1alpha1.TransitionStage{appsv1alpha1.StagePreCheck, appsv1alpha1.StagePostCheck} {
			Expect(passages.unapproved(stage, given)).To(BeEmpty())
			passages.expectOneForOne(stage, given)
		}
		service.expectOnePostPerTrace(p)
		Expect(service.Log(p.namespace)).To(HaveEach(HaveField("OperationTypes", Equal([]string{"update"}))))
		Expect(replicas - observer.leastAvailable()).To(BeNumerically("<=", 3))
	})

	It("passes some pods, reports why the others wait, and calls the service for those again", func(ctx context.Context) {
		rule := service.callsOnce("/approve-some?parameter=tier&value=gold&message=only+gold")
		rule.Webhook.Parameters = []appsv1alpha1.WebhookParameter{
			{Key: "team", Value: "shop"},
		}
		for key, path := range map[string]string{
			"tier": "metadata.labels['tier']", "image": "spec.containers[name=web].image", "ready": "status.conditions[type=Ready].status",
			"restarts": "status.containerStatuses[name=web].restartCount",
		} {
			rule.Webhook.Parameters = append(rule.Webhook.Parameters, appsv1alpha1.WebhookParameter{
				Key: key, ValueFrom: &appsv1alpha1.ParameterSource{FieldRef: &appsv1alpha1.FieldRef{FieldPath: path}},
			})
		}
		p.rule(ctx, rule)
		p.pods(ctx, 3, nil)
		p.label(ctx, p.get(ctx, "web-00"), "tier", "gold")
		p.beginAll(ctx)
		Eventually(ctx, p.seeing("web-00")).Should(expect.BeOperable("updater"))
		blocked(ctx, 2, "WebhookRejected", "only gold")
		Expect(service.Log(p.namespace)).To(HaveEach(HaveField("Pods", HaveEach(
			HaveField("Parameters", And(HaveLen(5), HaveKeyWithValue("team", "shop"), HaveKeyWithValue("tier", BeElementOf("gold", "")),
				HaveKeyWithValue("image", HavePrefix("registry.example.com/web")), HaveKeyWithValue("ready", "True"), HaveKeyWithValue("restarts", "0")))))))

		By("printing it")
		describe, _ := p.kubectl(ctx, "--namespace", p.namespace, "describe", "ptr", "web")
		Expect(describe).To(And(ContainSubstring("WebhookRejected"), ContainSubstring("only gold"), ContainSubstring("Next Check")))
		for _, pod := range p.list(ctx) {
			p.label(ctx, pod, "tier", "gold")
		}
		Eventually(ctx, p.list).WithTimeout(2 * patience).Should(HaveEach(expect.BeOperable("updater")))
		service.expectOnePostPerTrace(p)
		Expect(service.Approvals(p.namespace)).To(HaveLen(3))
	})

	It("that is rejected calls the service again later, not at once", func(ctx context.Context) {
		waiting(ctx, 2, service.callsOnce("/reject?message=freeze"))
		blocked(ctx, 2, "WebhookRejected", "freeze")
		Eventually(ctx, func() int { return len(service.Posts(p.namespace)) }).Should(BeNumerically(">", 2), "the service must be called again")
		before := map[string]time.Time{}
		for _, call := range service.Log(p.namespace) {
			for _, pod := range call.Pods {
				if last, again := before[pod.Name]; again {
					Expect(call.Time).To(BeTemporally(">=", last.Add(9*time.Second)), "the pause before the next call for %s", pod.Name)
				}
				before[pod.Name] = call.Time
			}
		}
		service.expectOnePostPerTrace(p)
	})

	It("that polls passes one pod with every poll", func(ctx context.Context) {
		// Another rule makes them wait, so that one call has all of them.
		gate := p.ruleNamed(ctx, "gate", approved())
		waiting(ctx, 4, service.polls("/poll?prefix=..%2F..%2Fx%3Fy%3Dz%26", pollSeconds))
		Eventually(ctx, p.seeingRule("gate")).Should(HaveField("Status.Blocked", HaveLen(4)))
		Expect(service.Log(p.namespace)).To(BeEmpty(), "the service must not be called for pods that a cheaper rule withholds")
		Expect(p.admin.Delete(ctx, gate)).To(Succeed())
		Eventually(ctx, p.list).Should(ContainElements(expect.BeWaiting("updater"), expect.BeOperable("updater")), "some must pass before the others")
		Eventually(ctx, p.list).Should(HaveEach(expect.BeOperable("updater")))
		Expect(service.Log(p.namespace)).To(And(
			ContainElement(And(HaveField("Path", "/result"), HaveField("Query", HavePrefix("task-id=")))),
			HaveEach(Or(HaveField("Path", Not(Equal("/result"))), HaveField("Approved", HaveLen(1))))))
		Expect(service.Approvals(p.namespace)).To(HaveLen(4))
		service.expectOnePostPerTrace(p)
	})

	It("supports the older field names: async, and both ids in the poll", func(ctx context.Context) {
		waiting(ctx, 2, service.polls("/async", pollSeconds))
		Eventually(ctx, p.list).Should(HaveEach(expect.BeOperable("updater")))
		Expect(service.Log(p.namespace)).To(ContainElement(And(HaveField("Path", "/result"),
			HaveField("Query", And(ContainSubstring("task-id="), ContainSubstring("trace-id="))))))
	})

	DescribeTable("waits, reports why, and calls again after a delay in its status",
		func(ctx context.Context, rule func(approvalService) appsv1alpha1.TransitionRule, reason string, texts ...string) {
			waiting(ctx, 1, rule(service))
			blocked(ctx, 1, reason, texts...)
			Eventually(ctx, p.seeingRule("web")).Should(havePaused("approval", 10*time.Second, 10*time.Minute))
			Expect(service.Approvals(p.namespace)).To(BeEmpty())
		},
		Entry("when the service stops the task", func(d approvalService) appsv1alpha1.TransitionRule {
			return d.polls("/stop?message=enough", pollSeconds)
		},
			"WebhookRejected", "gave up", "enough"),
		Entry("when the service takes too long", func(d approvalService) appsv1alpha1.TransitionRule { return d.polls("/never", 3) },
			"WebhookRejected", "too long", "3s"),
		Entry("when the service answers with an error", func(d approvalService) appsv1alpha1.TransitionRule { return d.callsOnce("/500?status=502") },
			"WebhookFailed", "HTTPStatus", "502"),
		Entry("when the answer is not JSON", func(d approvalService) appsv1alpha1.TransitionRule { return d.callsOnce("/garbage") },
			"WebhookFailed", "BadResponse", "line 1, column 1"),
		Entry("when the answer is a redirect", func(d approvalService) appsv1alpha1.TransitionRule { return d.callsOnce("/redirect") },
			"WebhookFailed", "RedirectRefused"),
		Entry("when there is no answer", func(d approvalService) appsv1alpha1.TransitionRule { return d.callsOnce("/hang") },
			"WebhookFailed", "Unreachable"),
		Entry("when the certificate is not trusted", func(d approvalService) appsv1alpha1.TransitionRule { return webhookRule(d.SecureURL("/approve")) },
			"WebhookFailed", "TLSUntrusted"),
		Entry("when the certificate has expired", func(approvalService) appsv1alpha1.TransitionRule {
			return openApprovalService(nil, approvals.Options{Flaw: approvals.Expired}).callsOverTLS("/approve")
		}, "WebhookFailed", "TLSExpired", "has expired"),
		Entry("when the certificate is for another name", func(approvalService) appsv1alpha1.TransitionRule {
			return openApprovalService(nil, approvals.Options{Flaw: approvals.ForAnotherName}).callsOverTLS("/approve")
		}, "WebhookFailed", "TLSNameMismatch", "another name"),
		Entry("when a task is announced, and the rule has no poll", func(d approvalService) appsv1alpha1.TransitionRule { return d.callsOnce("/poll") },
			"WebhookFailed", "BadResponse"),
		Entry("when the Secret does not exist", func(d approvalService) appsv1alpha1.TransitionRule {
			rule := d.callsOverTLS("/approve")
			rule.Webhook.ClientConfig.SecretRef = &appsv1alpha1.SecretReference{Name: "missing"}
			return rule
		}, "WebhookFailed", "Secret", "missing"),
	)

	It("sends the token of its Secret, which the manager may read, and trusts a bundle in base64", func(ctx context.Context) {
		p.kubectl(ctx, "--namespace", p.namespace, "apply", "-f", filepath.Join("..", "..", "config", "samples", "webhook", "secret.yaml"))
		rule := service.callsOverTLS("/approve?bearer=replace-me")
		rule.Webhook.ClientConfig.CABundle = base64.StdEncoding.EncodeToString(service.CA())
		rule.Webhook.ClientConfig.SecretRef = &appsv1alpha1.SecretReference{Name: "approvals"}
		waiting(ctx, 1, rule)
		Eventually(ctx, p.list).Should(HaveEach(expect.BeOperable("updater")))
		Expect(service.Log(p.namespace)).To(ConsistOf(And(HaveField("TLS", true), HaveField("Credentials", true))))
		for _, m := range managers.running() {
			Expect(m.Log()).NotTo(ContainSubstring("replace-me"), "the log of a manager must not have the token")
		}
	})

	It("with failurePolicy Ignore passes when the service does not answer; with Fail it waits, and passes when the service does", func(ctx context.Context) {
		address := freeAddress()
		ignoring := webhookRule("http://" + address + "/approve")
		ignoring.Webhook.FailurePolicy = appsv1alpha1.FailurePolicyIgnore
		tolerant := newScenario(ctx)
		tolerant.rule(ctx, ignoring)
		tolerant.pods(ctx, 1, nil)
		tolerant.beginAll(ctx)

		waiting(ctx, 1, webhookRule("http://"+address+"/approve"))
		Eventually(ctx, tolerant.list).Should(HaveEach(expect.BeOperable("updater")))
		blocked(ctx, 1, "WebhookFailed", "Unreachable")
		Eventually(ctx, p.seeingRule("web")).Should(HaveField("Status.RuleStates", ConsistOf(And(HaveField("Name", "approval"),
			HaveField("WebhookStatus.TaskStates", ConsistOf(And(HaveField("Phase", appsv1alpha1.TaskFailed),
				HaveField("Reason", "Unreachable"), HaveField("NextTime", Not(BeNil())), HaveField("Attempts", BeNumerically(">=", 1)))))))))
		late := openApprovalService(nil, approvals.Options{HTTPAddress: address})
		Eventually(ctx, p.list).WithTimeout(2 * patience).Should(HaveEach(expect.BeOperable("updater")))
		Expect(late.Approvals(p.namespace)).To(HaveLen(1))
	})

	It("with failurePolicy Ignore passes with any fault of the service", func(ctx context.Context) {
		var rules []appsv1alpha1.TransitionRule
		for name, rule := range map[string]appsv1alpha1.TransitionRule{
			"error": service.callsOnce("/500"), "garbage": service.callsOnce("/garbage"), "redirect": service.callsOnce("/redirect"),
			"untrusted": webhookRule(service.SecureURL("/approve")), "expired": openApprovalService(nil, approvals.Options{Flaw: approvals.Expired}).callsOverTLS("/approve"),
		} {
			rule.Name, rule.Webhook.FailurePolicy = name, appsv1alpha1.FailurePolicyIgnore
			rules = append(rules, rule)
		}
		waiting(ctx, 1, rules...)
		Eventually(ctx, p.list).Should(HaveEach(expect.BeOperable("updater")))
		Expect(service.Approvals(p.namespace)).To(BeEmpty())
	})

	It("in dry run calls the service, withholds no request, and counts the requests that would have waited", func(ctx context.Context) {
		rule := service.callsOnce("/reject")
		rule.Enforcement = appsv1alpha1.EnforcementDryRun
		waiting(ctx, 2, rule)
		Eventually(ctx, p.list).Should(HaveEach(expect.BeOperable("updater")))
		Eventually(ctx, p.seeingRule("web")).Should(HaveField("Status.Rules", ConsistOf(And(
			HaveField("Evaluated", int64(2)), HaveField("Withheld", int64(0)), HaveField("WouldWithhold", int64(2))))))
		Eventually(ctx, func() []approvals.Entry { return service.Log(p.namespace) }).ShouldNot(BeEmpty())
		service.expectOnePostPerTrace(p)
	})

	It("with failurePolicy Ignore waits when the service works on the task, and takes too long", func(ctx context.Context) {
		rule := service.polls("/never", 1)
		rule.Webhook.FailurePolicy = appsv1alpha1.FailurePolicyIgnore
		waiting(ctx, 1, rule)
		blocked(ctx, 1, "WebhookRejected", "too long")
	})

	It("with failurePolicy Ignore waits when the service rejects", func(ctx context.Context) {
		rule := service.callsOnce("/reject")
		rule.Webhook.FailurePolicy = appsv1alpha1.FailurePolicyIgnore
		waiting(ctx, 1, rule)
		blocked(ctx, 1, "WebhookRejected", "not today")
	})

	It("does not count approvals under an earlier version", func(ctx context.Context) {
		rule := p.rule(ctx, service.callsOnce("/approve"))
		p.ruleNamed(ctx, "other", approved())
		p.pods(ctx, 1, nil)
		p.beginAll(ctx)
		Eventually(ctx, p.seeingRule("other")).Should(HaveField("Status.Blocked", HaveLen(1)))
		p.patch(ctx, rule, `{"spec":{"rules":[{"name":"approval","webhook":{"clientConfig":{"url":%q}}}]}}`, service.URL("/reject"))
		p.awaitObserved(ctx, rule)
		p.approve(ctx)
		blocked(ctx, 1, "WebhookRejected")
	})

	It("waits for a decision", func(ctx context.Context) {
		waiting(ctx, 2, service.polls("/manual", 600))
		Eventually(ctx, func() []approvals.Held { return service.Waiting(p.namespace) }).Should(HaveLen(2))
		Consistently(ctx, p.list).Should(HaveEach(expect.BeWaiting("updater")))
		Eventually(ctx, p.seeingRule("web")).Should(HaveField("Status.Blocked", HaveEach(HaveField("Reason", "WebhookProcessing"))))
		Expect(service.Decide(p.namespace, "web-01", true)).To(Equal([]string{"web-01"}))
		Eventually(ctx, p.seeing("web-01")).Should(expect.BeOperable("updater"))
		Consistently(ctx, p.seeing("web-00")).Should(expect.BeWaiting("updater"))
		Expect(service.Decide(p.namespace, "web-00", false)).To(Equal([]string{"web-00"}))
		blocked(ctx, 1, "WebhookRejected", "gave up")
	})

	It("does not affect rules of other services when its own never answers", func(ctx context.Context) {
		waiting(ctx, 3, service.callsOnce("/hang"))
		Eventually(ctx, func() []approvals.Entry { return service.Log(p.namespace) }).ShouldNot(BeEmpty())
		other, quick := newScenario(ctx), openApprovalService(nil, approvals.Options{})
		other.rule(ctx, quick.callsOnce("/approve"))
		other.pods(ctx, 3, nil)
		other.beginAll(ctx)
		// A call that hangs lasts longer than this.
		Eventually(ctx, func() []approvals.Approval { return quick.Approvals(other.namespace) }).WithTimeout(patience / 5).Should(HaveLen(3))
		Eventually(ctx, other.list).Should(HaveEach(expect.BeOperable("updater")))
		Expect(p.list(ctx)).To(HaveEach(expect.BeWaiting("updater")))
	})
})
