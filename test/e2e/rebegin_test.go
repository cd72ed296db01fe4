package e2e_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/expect"
)

var _ = Describe("A bad update that is reverted", func() {
	It("gives the pod no traffic before it has passed the PostCheck rules", func(ctx context.Context) {
		const id, good = "updater", "e2e.podops.dev/good"
		p := newScenario(ctx)
		p.rule(ctx, approved(), inPostCheck(appsv1alpha1.TransitionRule{Name: "good", LabelCheck: &appsv1alpha1.LabelCheck{
			Requires: &metav1.LabelSelector{MatchLabels: map[string]string{good: "true"}},
		}}))
		p.pods(ctx, 1, nil)
		name := p.list(ctx)[0].Name
		finish := map[string]any{appsv1alpha1.OperatingLabelPrefix + "/" + id: nil}

		By("updating it to an image that PostCheck rules withhold")
		p.approve(ctx)
		p.begin(ctx, p.get(ctx, name), id, "update")
		Eventually(ctx, p.seeing(name)).Should(expect.BeOperable(id))
		p.setLabels(ctx, p.get(ctx, name), finish)
		Eventually(ctx, p.seeing(name)).Should(expect.HaveLabel(appsv1alpha1.PostCheckLabelPrefix + "/" + id))

		By("beginning again, when PreCheck rules withhold every request")
		p.label(ctx, p.get(ctx, name), approvedLabel, "false")
		p.begin(ctx, p.get(ctx, name), id, "rollback")
		Expect(p.get(ctx, name)).To(expect.BeWaiting(id))
		Consistently(ctx, p.seeing(name)).Should(And(
			expect.BeWaiting(id), expect.HaveGate(corev1.ConditionFalse), Not(expect.BeReady()), Not(expect.BeAvailable())))

		By("reverting it")
		p.approve(ctx)
		Eventually(ctx, p.seeing(name)).Should(expect.BeOperable(id))
		p.setLabels(ctx, p.get(ctx, name), finish)
		p.label(ctx, p.get(ctx, name), good, "true")
		Eventually(ctx, p.seeing(name)).Should(And(expect.BeAvailable(), expect.HaveNoLifecycle()))
	})
})
