package e2e_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/audit"
	"github.com/podops-dev/podops/test/expect"
)

// notes returns the notes of the events of a reason.
func (p scenario) notes(reason string) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		list := &eventsv1.EventList{}
		if err := p.admin.List(ctx, list, client.InNamespace(p.namespace)); err != nil {
			return nil, err
		}
		var notes []string
		for _, event := range list.Items {
			if event.Reason == reason {
				notes = append(notes, event.Note)
			}
		}
		return notes, nil
	}
}

var _ = Describe("A pod that waits for a rule", func() {
	const maxHold = 3 * time.Second

	var p scenario

	BeforeEach(func(ctx context.Context) { p = newScenario(ctx) })

	bounded := func(ctx context.Context, action appsv1alpha1.HoldAction) {
		GinkgoHelper()
		p.patch(ctx, p.rule(ctx, approved()), `{"spec":{"maxHold":%q,"onMaxHold":%q}}`, maxHold, action)
	}

	It("is released after maxHold", func(ctx context.Context) {
		bounded(ctx, appsv1alpha1.HoldRelease)
		deployment := p.deployment(ctx, 3, nil)
		p.scale(ctx, deployment, 2)
		p.awaitAvailable(ctx, 2)
		Eventually(ctx, p.notes("HoldExpired")).Should(ContainElement(ContainSubstring("passes rule web/approved (LabelMismatch): maxHold, held for 3s")))
	})

	It("keeps serving after maxHold", func(ctx context.Context) {
		bounded(ctx, appsv1alpha1.HoldUndo)
		set := p.replicaSet(ctx, 2)
		p.scale(ctx, set, 1)
		Eventually(ctx, p.notes("HoldExpired")).Should(ContainElement(ContainSubstring("is cancelled: rule web/approved held it for 3s (maxHold)")))

		Eventually(ctx, p.list).Should(And(HaveLen(2), HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle()))))
	})

	It("of a Deployment begins again after a pause, with a bounded number of writes", func(ctx context.Context) {
		bounded(ctx, appsv1alpha1.HoldUndo)
		deployment := p.deployment(ctx, 3, nil)
		ledger := openLedger(p)
		p.scale(ctx, deployment, 2)
		writes := func() int { return len(ledger.byAllUsers(audit.On("pods"), audit.InNamespace(p.namespace), accepted)) }
		const each = 3 // begin, cancel, and the deletion cost
		Eventually(ctx, writes).Should(Equal(each))
		Eventually(ctx, writes).Should(Equal(2*each), "after a pause of 10 seconds")
		Consistently(ctx, writes).Should(Equal(2*each), "in a pause of 20 seconds")
		Expect(p.list(ctx)).To(And(HaveLen(3), HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle()))))

		By("scaling up again")
		p.scale(ctx, deployment, 3)
		Eventually(ctx, p.list).Should(HaveEach(expect.HaveNoLifecycle()))
	})

	It("passes by break-glass of the pod, then of the namespace", func(ctx context.Context) {
		p.rule(ctx, approved(), maxUnavailable("1"))
		p.pods(ctx, 3, nil)
		pods := p.list(ctx)
		for _, pod := range pods {
			p.begin(ctx, pod, "upgrade", "upgrade")
		}
		Eventually(ctx, p.list).Should(HaveEach(expect.BeWaiting("upgrade")))

		By("annotating one pod")
		p.patch(ctx, pods[1], `{"metadata":{"annotations":{%q:"INC-1, jane"}}}`, appsv1alpha1.BreakGlassAnnotationKey)
		Eventually(ctx, p.seeing(pods[1].Name)).Should(And(expect.BeOperable("upgrade"), Not(expect.BeReady())))
		Expect(p.list(ctx)).To(WithTransform(operable("upgrade"), Equal(1)))
		Eventually(ctx, p.notes("BreakGlass")).Should(ConsistOf(ContainSubstring("break-glass of the pod: INC-1, jane")))

		By("annotating the namespace")
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}
		p.patch(ctx, namespace, `{"metadata":{"annotations":{%q:"INC-2, jane"}}}`, appsv1alpha1.BreakGlassAnnotationKey)
		Eventually(ctx, p.list).Should(HaveEach(expect.BeOperable("upgrade")))
		Eventually(ctx, p.seeingRule("web")).Should(HaveField("Status.Conditions",
			ContainElement(And(HaveField("Type", appsv1alpha1.ConditionBreakGlass), HaveField("Message", HaveSuffix("INC-2, jane"))))))
	})
})
