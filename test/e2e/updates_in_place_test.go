package e2e_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/test/expect"
)

var _ = Describe("An update in place without an operation", func() {
	var p scenario

	BeforeEach(func(ctx context.Context) {
		p = newScenario(ctx)
		p.rule(ctx, approved())
		p.pods(ctx, 1, nil)
	})

	version := 1
	setImage := func(ctx context.Context) error {
		version++
		return p.admin.Patch(ctx, p.get(ctx, "web-00"), client.RawPatch(types.StrategicMergePatchType,
			fmt.Appendf(nil, `{"spec":{"containers":[{"name":"web","image":"registry.example.com/web:v%d"}]}}`, version)))
	}

	It("passes, and is reported once", func(ctx context.Context) {
		counted := func(ctx context.Context) string {
			return managers.metric(ctx, "podops_updates_unguarded_total", p.namespace)
		}
		Expect(setImage(ctx)).To(Succeed())
		Eventually(ctx, p.notes("UpdatedUnguarded")).Should(ConsistOf(ContainSubstring("changed in place (generation 2)")))
		Eventually(ctx, counted).Should(Equal("1"))

		By("changing labels and the status only")
		p.label(ctx, p.get(ctx, "web-00"), "example.com/note", "x")
		Consistently(ctx, counted).Should(Equal("1"))

		By("in an operation")
		p.approve(ctx)
		p.begin(ctx, p.get(ctx, "web-00"), "a", "update")
		Eventually(ctx, p.seeing("web-00")).Should(expect.BeOperable("a"))
		Expect(setImage(ctx)).To(Succeed())
		Consistently(ctx, counted).Should(Equal("1"))
	})

	It("is denied where a rule denies it, until the rule is deleted", func(ctx context.Context) {
		rule := p.listRules(ctx)[0]
		p.patch(ctx, rule, `{"spec":{"unguardedUpdates":"Deny"}}`)
		Eventually(ctx, setImage).Should(
			expect.BeRefused(403, "PodTransitionRule web (unguardedUpdates: Deny)", "create a PodOperation"))

		By("in an operation that waits, and then may operate")
		p.begin(ctx, p.get(ctx, "web-00"), "a", "update")
		Eventually(ctx, p.seeing("web-00")).Should(expect.BeWaiting("a"))
		Expect(setImage(ctx)).To(expect.BeRefused(403))
		p.approve(ctx)
		Eventually(ctx, p.seeing("web-00")).Should(expect.BeOperable("a"))
		Expect(setImage(ctx)).To(Succeed())
		p.setLabels(ctx, p.get(ctx, "web-00"), map[string]any{"operating.podopslifecycle.kusionstack.io/a": nil})
		Eventually(ctx, p.seeing("web-00")).Should(And(expect.BeAvailable(), expect.HaveNoLifecycle()))
		Expect(setImage(ctx)).To(expect.BeRefused(403))

		By("deleting the rule")
		Expect(p.admin.Delete(ctx, rule)).To(Succeed())
		Eventually(ctx, setImage).Should(Succeed())
	})
})
