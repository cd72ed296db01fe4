package e2e_test

import (
	"context"
	"net/url"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/approvals"
	"github.com/podops-dev/podops/test/expect"
)

// havePaused matches a PodTransitionRule of which one rule has one call that has failed and
// is retried after a pause. A whole second may be added, since times in status have whole
// seconds.
func havePaused(rule string, least, most time.Duration) types.GomegaMatcher {
	pause := func(task appsv1alpha1.TaskInfo) time.Duration {
		if task.NextTime == nil {
			return 0
		}
		return task.NextTime.Sub(task.LastTime.Time)
	}
	return HaveField("Status.RuleStates", ContainElement(And(HaveField("Name", rule), HaveField("WebhookStatus.TaskStates",
		ConsistOf(WithTransform(pause, And(BeNumerically(">=", least), BeNumerically("<=", most+time.Second))))))))
}

var _ = Describe("A webhook rule backs off", Label(callStories), func() {
	It("from a service for as long as its Retry-After requires, within bounds", func(ctx context.Context) {
		p, service := newScenario(ctx), openApprovalService(nil, approvals.Options{})
		inTwoMinutes := time.Now().Add(2 * time.Minute).UTC().Format(time.RFC1123)
		expected := map[string]struct {
			query       string
			least, most time.Duration
		}{
			"seconds":           {"seconds=60", time.Minute, time.Minute},
			"seconds-with-429":  {"status=429&seconds=120", 2 * time.Minute, 2 * time.Minute},
			"date":              {"value=" + url.QueryEscape(strings.ReplaceAll(inTwoMinutes, "UTC", "GMT")), 2*time.Minute - patience, 2 * time.Minute},
			"too-many-seconds":  {"seconds=999999999", 5 * time.Minute, 5 * time.Minute},
			"year-9999":         {"value=" + url.QueryEscape("Fri, 31 Dec 9999 23:59:59 GMT"), 5 * time.Minute, 5 * time.Minute},
			"beyond-int64":      {"value=9223372036854775808", 5 * time.Minute, 5 * time.Minute},
			"less-than-nothing": {"value=-60", 10 * time.Second, 10 * time.Second},
			"in-the-past":       {"value=" + url.QueryEscape("Thu, 01 Jan 1970 00:00:00 GMT"), 10 * time.Second, 10 * time.Second},
		}
		var rules []appsv1alpha1.TransitionRule
		var paused []types.GomegaMatcher
		for name, one := range expected {
			rule := service.callsOnce("/retry-after?times=0&" + one.query)
			rule.Name = name
			rules, paused = append(rules, rule), append(paused, havePaused(name, one.least, one.most))
		}
		p.rule(ctx, rules...)
		p.pods(ctx, 1, nil)
		p.beginAll(ctx)
		Eventually(ctx, p.seeingRule("web")).Should(And(paused...))
		Eventually(ctx, p.seeingRule("web")).Should(HaveField("Status.Blocked", HaveEach(And(
			HaveField("Reason", "WebhookFailed"), HaveField("Message", ContainSubstring("HTTPStatus")), HaveField("NextCheck", Not(BeNil()))))))
		Consistently(ctx, p.list).Should(HaveEach(expect.BeWaiting("updater")))
	})

	It("from addresses that the manager no longer allows, and can be edited to another address", func(ctx context.Context) {
		p, service := newScenario(ctx), openApprovalService(nil, approvals.Options{})
		byName, byAddress := webhookRule(strings.Replace(service.URL("/approve"), "127.0.0.1", "localhost", 1)), service.callsOnce("/approve")
		byName.Name, byAddress.Name = "by-name", "by-address"
		object := p.rule(ctx, byName, byAddress)

		DeferCleanup(func(ctx context.Context) {
			managers.stopAll()
			managers.start(ctx)
		})
		managers.stopAll()
		strict := managers.launch("--rule-webhook-allow-cidr", "")
		Eventually(ctx, strict.Ready).Should(Succeed(), strict.Tail)
		p.pods(ctx, 1, nil)
		p.beginAll(ctx)
		Eventually(ctx, p.seeingRule("web")).Should(And(
			havePaused("by-name", 10*time.Second, 10*time.Minute), havePaused("by-address", 10*time.Second, 10*time.Minute),
			HaveField("Status.RuleStates", HaveEach(HaveField("WebhookStatus.TaskStates", HaveEach(HaveField("Reason", "AddressForbidden")))))))
		Expect(service.Log(p.namespace)).To(BeEmpty())
		Consistently(ctx, p.list).Should(HaveEach(expect.BeWaiting("updater")))

		_, refusal := newScenario(ctx).createRule(ctx, webhook("url: 'https://localhost/'"))
		Expect(refusal).To(expect.BeRefused(422, "spec.rules[0].webhook.clientConfig.url", "localhost", "--rule-webhook-allow-host"))
		p.patch(ctx, object, `{"metadata":{"labels":{"team":"shop"}},"spec":{"selector":{"matchLabels":{"app":"none"}}}}`)
		Eventually(ctx, p.list).Should(HaveEach(expect.BeOperable("updater")))
		Expect(p.admin.Delete(ctx, object)).To(Succeed())
	})
})
