package e2e_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	coresurge "github.com/podops-dev/podops/pkg/core/surge"
	"github.com/podops-dev/podops/test/expect"
)

var _ = Describe("An availablePolicy with surge", func() {
	var p scenario

	restart := appsv1alpha1.PodOperationAction{Type: appsv1alpha1.ActionRestart}
	webDeployment := appsv1alpha1.PodOperationTarget{Owner: &appsv1alpha1.PodOperationOwner{Kind: "Deployment", Name: "web"}}

	BeforeEach(func(ctx context.Context) {
		p = newScenario(ctx)
		surges := minAvailable("100%")
		surges.AvailablePolicy.Surge = intOrString("1")
		p.rule(ctx, surges)
	})

	// evicted evicts a pod until it is gone, as kubectl drain does.
	evicted := func(ctx context.Context, pod *corev1.Pod) {
		GinkgoHelper()
		Eventually(ctx, func(ctx context.Context) error { return p.evict(ctx, pod) }).WithPolling(time.Second).WithTimeout(2 * patience).
			Should(Or(Succeed(), Satisfy(apierrors.IsNotFound)))
		Eventually(ctx, func(ctx context.Context) []types.UID { return uids(p.list(ctx)) }).ShouldNot(ContainElement(pod.UID))
	}

	// atRest expects the Deployment to have its replicas, each with the ReplicaSet, and nothing recorded.
	atRest := func(ctx context.Context, replicas int) {
		GinkgoHelper()
		Eventually(ctx, p.list).WithTimeout(2 * patience).Should(And(HaveLen(replicas), HaveEach(And(
			expect.BeAvailable(), expect.HaveNoLifecycle(), Not(Satisfy(coresurge.Surges)), HaveField("OwnerReferences", HaveLen(1)),
			HaveField("Annotations", And(Not(HaveKey(appsv1alpha1.SurgeAnnotationKey)), Not(HaveKey(corev1.PodDeletionCost))))))))
	}

	surging := func(pod *corev1.Pod) func(context.Context) (*corev1.Pod, error) { return p.seeing(pod.Name) }

	It("lets the only pod be evicted once another pod is available", Label(mainStories), func(ctx context.Context) {
		p.deployment(ctx, 1, nil)
		p.disruptionBudget(ctx, "web", "0")
		observer := observe(p)
		before := p.list(ctx)[0]
		refused := p.evict(ctx, before)
		Expect(refused).To(Satisfy(apierrors.IsTooManyRequests), "no other pod is available yet")
		Eventually(ctx, surging(before)).Should(Satisfy(coresurge.Surges))
		explained, _ := p.plugin(ctx, "explain", "pod/"+before.Name)
		Expect(explained).To(MatchRegexp(`Deployment\s+web\s+starts\s+another\s+pod`))
		evicted(ctx, before)
		atRest(ctx, 1)
		Expect(observer.leastAvailable()).To(Equal(1))
		Expect(observer.mostPods()).To(Equal(2))
		Expect(p.notes("SurgeBegan")(ctx)).To(ConsistOf("Deployment web starts another pod before this one goes, since PodDisruptionBudget/web withholds it"))
		Expect(p.notes("SurgeEnded")(ctx)).To(BeEmpty())

		By("evicting the next")
		evicted(ctx, p.list(ctx)[0])
		atRest(ctx, 1)
		Expect(observer.leastAvailable()).To(Equal(1))
		Expect(observer.mostPods()).To(Equal(2))
	})

	It("begins with the command of explain", func(ctx context.Context) {
		inNamespace := []string{"--namespace", p.namespace, "patch", "podtransitionrule", "web", "--type=json", "-p"}
		p.kubectl(ctx, append(inNamespace, `[{"op":"remove","path":"/spec/rules/0/availablePolicy/surge"}]`)...)
		p.deployment(ctx, 1, nil)
		before := p.list(ctx)[0]
		p.label(ctx, before, appsv1alpha1.ToDeleteLabelKey, "true")
		command := regexp.MustCompile(`kubectl .* patch podtransitionrule web --type=json -p '(.*)'`)
		var printed []string
		Eventually(ctx, func(ctx context.Context) []string {
			explained, _ := p.plugin(ctx, "explain", "pod/"+before.Name)
			printed = command.FindStringSubmatch(explained)
			return printed
		}).Should(HaveLen(2))
		p.kubectl(ctx, append(inNamespace, printed[1])...)
		Eventually(ctx, func(ctx context.Context) []types.UID { return uids(p.list(ctx)) }).WithTimeout(2 * patience).ShouldNot(ContainElement(before.UID))
		atRest(ctx, 1)
	})

	It("lets all pods be deleted at once, within maxSurge", func(ctx context.Context) {
		p.deployment(ctx, 3, nil)
		observer := observe(p)
		for _, pod := range p.list(ctx) {
			p.label(ctx, pod, appsv1alpha1.ToDeleteLabelKey, "true")
		}
		before := uids(p.list(ctx))
		Eventually(ctx, func(ctx context.Context) []types.UID { return uids(p.list(ctx)) }).WithTimeout(3 * patience).
			ShouldNot(ContainElement(BeElementOf(before)))
		atRest(ctx, 3)
		Expect(observer.leastAvailable()).To(Equal(3))
		Expect(observer.mostPods()).To(Equal(4))
	})

	It("keeps the pod whose request is withdrawn", func(ctx context.Context) {
		p.deployment(ctx, 1, nil)
		before := p.list(ctx)[0]
		p.label(ctx, before, appsv1alpha1.ToDeleteLabelKey, "true")
		Eventually(ctx, surging(before)).Should(Satisfy(coresurge.Surges))
		p.setLabels(ctx, p.get(ctx, before.Name), map[string]any{
			appsv1alpha1.ToDeleteLabelKey: nil, appsv1alpha1.UndoOperationTypeLabelPrefix + "/" + appsv1alpha1.PodDeleteID: "delete",
		})
		atRest(ctx, 1)
		Expect(uids(p.list(ctx))).To(ConsistOf(before.UID))
		Expect(p.notes("SurgeEnded")(ctx)).To(ConsistOf(HaveSuffix("no operation on the pod is in progress")))
	})

	It("keeps the pod that was restarted in place", func(ctx context.Context) {
		p.deployment(ctx, 1, nil)
		observer := observe(p)
		before := p.list(ctx)[0]
		operation := p.operation(ctx, appsv1alpha1.PodOperationSpec{Target: webDeployment, Action: restart})
		Eventually(ctx, p.seeingOperation(operation)).WithTimeout(3 * patience).Should(haveEnded(appsv1alpha1.ReasonSucceeded, 1))
		atRest(ctx, 1)
		Expect(p.list(ctx)).To(ConsistOf(And(HaveField("UID", before.UID), haveRestarted(1))))
		Expect(observer.leastAvailable()).To(Equal(1))
		Expect(observer.mostPods()).To(Equal(2))
	})

	It("keeps the pod when the other one does not become available in time, and tries again", func(ctx context.Context) {
		p.deployment(ctx, 1, func(d *appsv1.Deployment) { d.Spec.ProgressDeadlineSeconds = ptr.To[int32](5) })
		observer := observe(p)
		before := p.list(ctx)[0]
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "pods"}, Spec: corev1.ResourceQuotaSpec{
			Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")},
		}}
		Expect(p.admin.Create(ctx, quota)).To(Succeed())
		Eventually(ctx, func(ctx context.Context) (corev1.ResourceQuotaStatus, error) {
			return quota.Status, p.admin.Get(ctx, client.ObjectKeyFromObject(quota), quota)
		}).Should(HaveField("Used", HaveKey(corev1.ResourcePods)))
		p.label(ctx, before, appsv1alpha1.ToDeleteLabelKey, "true")
		Eventually(ctx, p.notes("SurgeEnded")).Should(ContainElement(HaveSuffix("has not become available within the progressDeadlineSeconds of the Deployment")))
		Expect(p.get(ctx, before.Name)).To(expect.BeAvailable())
		explained, _ := p.plugin(ctx, "explain", "pod/"+before.Name)
		Expect(explained).To(MatchRegexp(`did\s+not\s+become\s+available\s+within\s+its\s+progressDeadlineSeconds`))

		By("raising the quota")
		p.patch(ctx, quota, `{"spec":{"hard":{"pods":"2"}}}`)
		Eventually(ctx, func(ctx context.Context) []types.UID { return uids(p.list(ctx)) }).WithTimeout(3 * patience).ShouldNot(ContainElement(before.UID))
		atRest(ctx, 1)
		Expect(observer.leastAvailable()).To(Equal(1))
	})

	It("leaves the pod to a rollout that begins in the middle", func(ctx context.Context) {
		deployment := p.deployment(ctx, 1, func(d *appsv1.Deployment) {
			d.Spec.Template.Annotations = map[string]string{"test.podops.dev/start-delay": "2s"}
		})
		observer := observe(p)
		before := p.list(ctx)[0]
		p.label(ctx, before, appsv1alpha1.ToDeleteLabelKey, "true")
		Eventually(ctx, surging(before)).Should(Satisfy(coresurge.Surges))
		p.patch(ctx, deployment, `{"spec":{"template":{"metadata":{"annotations":{"e2e.podops.dev/restarted":"yes"}}}}}`)
		Eventually(ctx, func(ctx context.Context) []types.UID { return uids(p.list(ctx)) }).WithTimeout(3 * patience).ShouldNot(ContainElement(before.UID))
		atRest(ctx, 1)
		Expect(p.list(ctx)).To(HaveEach(HaveField("Annotations", HaveKey("e2e.podops.dev/restarted"))))
		Expect(observer.leastAvailable()).To(Equal(1))
	})

	It("goes with its Deployment", func(ctx context.Context) {
		deployment := p.deployment(ctx, 1, func(d *appsv1.Deployment) {
			d.Spec.Template.Annotations = map[string]string{"test.podops.dev/start-delay": "5s"}
		})
		before := p.list(ctx)[0]
		p.label(ctx, before, appsv1alpha1.ToDeleteLabelKey, "true")
		Eventually(ctx, surging(before)).Should(Satisfy(coresurge.Surges))
		Expect(p.admin.Delete(ctx, deployment, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
		Eventually(ctx, p.list).Should(BeEmpty())
	})

	It("leaves a pod to its ReplicaSet that leaves PodOps", func(ctx context.Context) {
		p.deployment(ctx, 1, func(d *appsv1.Deployment) {
			d.Spec.Template.Annotations = map[string]string{"test.podops.dev/start-delay": "5s"}
		})
		before := p.list(ctx)[0]
		p.label(ctx, before, appsv1alpha1.ToDeleteLabelKey, "true")
		Eventually(ctx, surging(before)).Should(Satisfy(coresurge.Surges))
		p.setLabels(ctx, p.get(ctx, before.Name), map[string]any{appsv1alpha1.ControlLabelKey: nil})
		Eventually(ctx, p.list).WithTimeout(2 * patience).Should(ConsistOf(And(
			HaveField("UID", before.UID), HaveField("OwnerReferences", ConsistOf(HaveField("Kind", "ReplicaSet"))),
			HaveField("Annotations", And(Not(HaveKey(appsv1alpha1.SurgeAnnotationKey)), Not(HaveKey(corev1.PodDeletionCost)))))))
	})

	It("goes on beside a HorizontalPodAutoscaler, which scales in the middle", func(ctx context.Context) {
		deployment := p.deployment(ctx, 1, func(d *appsv1.Deployment) {
			requestCPU(d)
			d.Spec.Template.Annotations = map[string]string{"test.podops.dev/start-delay": "5s"}
		})
		usage := serveCPUUsage(ctx, p)
		usage.load.Store(50)
		autoscaler := p.autoscaler(ctx, deployment)
		current := func(ctx context.Context) (autoscalingv2.HorizontalPodAutoscalerStatus, error) {
			err := p.admin.Get(ctx, client.ObjectKeyFromObject(autoscaler), autoscaler)
			return autoscaler.Status, err
		}
		Eventually(ctx, current).Should(And(HaveField("DesiredReplicas", BeEquivalentTo(1)), HaveField("CurrentMetrics", Not(BeEmpty()))))
		observer := observe(p)
		before := p.list(ctx)[0]
		p.label(ctx, before, appsv1alpha1.ToDeleteLabelKey, "true")
		Eventually(ctx, surging(before)).Should(Satisfy(coresurge.Surges))
		usage.load.Store(150)
		Eventually(ctx, func(ctx context.Context) []types.UID { return uids(p.list(ctx)) }).WithTimeout(3 * patience).ShouldNot(ContainElement(before.UID))
		atRest(ctx, 3)
		Expect(observer.leastAvailable()).To(BeNumerically(">=", 1))

		By("scaling in again")
		usage.load.Store(50)
		atRest(ctx, 1)
		Expect(current(ctx)).To(HaveField("DesiredReplicas", BeEquivalentTo(1)))
	})

	It("lets two nodes be drained at once, one pod after the other", func(ctx context.Context) {
		p.deployment(ctx, 2, func(d *appsv1.Deployment) {
			d.Spec.Template.Labels["e2e.podops.dev/scenario"] = p.namespace
			d.Spec.Template.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				LabelSelector: d.Spec.Selector, TopologyKey: corev1.LabelHostname,
			}}}}
		})
		p.disruptionBudget(ctx, "web", "0")
		observer := observe(p)
		before := p.list(ctx)
		var drains sync.WaitGroup
		for _, pod := range before {
			node := pod.Spec.NodeName
			DeferCleanup(func(ctx context.Context) { p.kubectl(ctx, "uncordon", node) })
			drains.Go(func() {
				defer GinkgoRecover()
				p.kubectl(ctx, "drain", node, "--pod-selector=e2e.podops.dev/scenario="+p.namespace, "--timeout=3m")
			})
		}
		drains.Wait()
		atRest(ctx, 2)
		Expect(uids(p.list(ctx))).NotTo(ContainElements(BeElementOf(uids(before))))
		Expect(observer.leastAvailable()).To(Equal(2))
		Expect(observer.mostPods()).To(Equal(3))
	})

	It("goes on when the leader is killed after any change of the pod", Label(longStories), func(ctx context.Context) {
		team := newTeam(ctx, shortLease...)
		p = newScenario(ctx)
		surges := minAvailable("100%")
		surges.AvailablePolicy.Surge = intOrString("1")
		p.rule(ctx, surges)
		p.deployment(ctx, 1, nil)
		observer := observe(p)
		var current atomic.Pointer[types.UID]
		changes := make(chan struct{}, 1000)
		pods := &corev1.PodList{}
		follow(p, pods, func() []*corev1.Pod { return pointers(pods.Items) }, func(event watch.EventType, pod *corev1.Pod) {
			if uid := current.Load(); uid != nil && pod.UID == *uid && event == watch.Modified {
				changes <- struct{}{}
			}
		})
		kills := 0
		for killed := true; killed; kills++ {
			Expect(kills).To(BeNumerically("<", 40), "the pod changes without end")
			before := p.list(ctx)[0]
			current.Store(&before.UID)
			p.label(ctx, before, appsv1alpha1.ToDeleteLabelKey, "true")
			gone := func() bool { return !slices.Contains(uids(p.list(ctx)), before.UID) }
			killed = false
			for seen := 0; seen <= kills && !gone(); {
				select {
				case <-changes:
					seen++
				case <-time.After(100 * time.Millisecond):
				}
				if killed = seen > kills; killed {
					team.killLeader(ctx)
				}
			}
			Eventually(ctx, gone).WithTimeout(4 * patience).Should(BeTrue())
			atRest(ctx, 1)
			for len(changes) > 0 {
				<-changes
			}
		}
		AddReportEntry("figures", fmt.Sprintf("%d kills; least available %d, most pods %d of 1", kills-1, observer.leastAvailable(), observer.mostPods()))
		Expect(observer.leastAvailable()).To(Equal(1))
		Expect(observer.mostPods()).To(Equal(2))
	})

	It("goes on with another manager", func(ctx context.Context) {
		p.deployment(ctx, 1, func(d *appsv1.Deployment) {
			d.Spec.Template.Annotations = map[string]string{"test.podops.dev/start-delay": "2s"}
		})
		observer := observe(p)
		before := p.list(ctx)[0]
		p.label(ctx, before, appsv1alpha1.ToDeleteLabelKey, "true")
		Eventually(ctx, surging(before)).Should(Satisfy(coresurge.Surges))
		managers.stopAll()
		managers.start(ctx)
		Eventually(ctx, func(ctx context.Context) []types.UID { return uids(p.list(ctx)) }).WithTimeout(3 * patience).ShouldNot(ContainElement(before.UID))
		atRest(ctx, 1)
		Expect(observer.leastAvailable()).To(Equal(1))
		Expect(observer.mostPods()).To(Equal(2))
	})
})
