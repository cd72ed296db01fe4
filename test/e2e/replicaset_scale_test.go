package e2e_test

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/test/audit"
	"github.com/podops-dev/podops/test/expect"
)

const (
	fleet = 12 // replicas of the Deployments
	surge = 3  // 25 % of them
)

var _ = Describe("A Deployment whose rollout waits", Label(mainStories), func() {
	var p scenario
	var deployment *appsv1.Deployment
	var requests *requests

	BeforeEach(func(ctx context.Context) {
		p = newScenario(ctx)
		p.rule(ctx, approved())
		deployment = p.deployment(ctx, fleet, nil)
		requests = countRequests(p)
	})

	restart := func(ctx context.Context) {
		GinkgoHelper()
		p.kubectl(ctx, "--namespace", p.namespace, "rollout", "restart", "deployment/web")
	}

	It("never has more than replicas + maxSurge pods, no failed delete and no failed ReplicaSet", func(ctx context.Context) {
		before := p.list(ctx)
		ledger := openLedger(p)
		restart(ctx)
		Eventually(ctx, p.list).Should(And(HaveLen(fleet+surge), ContainElement(expect.BeWaiting(podDelete))))
		Consistently(ctx, p.list).WithTimeout(2 * holdWindow).Should(HaveLen(fleet + surge))
		writesToSets := func() int { return len(ledger.byAllUsers(audit.On("replicasets"), audit.InNamespace(p.namespace))) }
		settled := awaitSettled(ctx, writesToSets)
		Consistently(ctx, writesToSets).Should(Equal(settled), "writes to ReplicaSets while nothing changes")

		By("going on as its pods are approved")
		stop := approveOneByOne(p, before)
		defer stop()
		Eventually(ctx, p.list).WithTimeout(3 * patience).Should(And(HaveLen(fleet),
			WithTransform(uids, Not(ContainElements(BeElementOf(uids(before))))),
			expect.All(And(expect.BeAvailable(), expect.HaveNoLifecycle()))))
		writes := ledger.byAllUsers(audit.On("replicasets"), audit.InNamespace(p.namespace))
		AddReportEntry("figures", map[string]any{"most replicas": requests.mostAtOnce(), "writes to ReplicaSets": len(writes), "while waiting": settled})
		Expect(requests.mostAtOnce()).To(Equal(fleet + surge))
		p.expectNoFailedDelete(ctx, deployment)
		Eventually(ctx, p.annotatedSets).Should(BeEmpty())
	})

	It("keeps its old pods when it is undone, with their deletion cost", func(ctx context.Context) {
		before := p.list(ctx)
		p.patch(ctx, before[0], `{"metadata":{"annotations":{"controller.kubernetes.io/pod-deletion-cost":"-7"}}}`)
		restart(ctx)
		Eventually(ctx, p.list).Should(And(HaveLen(fleet+surge), ContainElement(expect.BeWaiting(podDelete))))
		p.kubectl(ctx, "--namespace", p.namespace, "rollout", "undo", "deployment/web")
		stop := approveOthers(p, before) // the new pods may go
		defer stop()
		Eventually(ctx, p.list).Should(And(WithTransform(uids, ConsistOf(uids(before))),
			HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle()))))
		Eventually(ctx, p.annotatedSets).Should(BeEmpty())
		for _, pod := range p.list(ctx) {
			want := map[bool]string{true: "-7", false: ""}[pod.UID == before[0].UID]
			Expect(pod.Annotations[corev1.PodDeletionCost]).To(Equal(want))
			Expect(pod.Annotations).NotTo(HaveKey(appsv1alpha1.PreviousDeletionCostAnnotationKey))
		}
		Expect(p.admin.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
		Expect(deployment.Annotations).NotTo(HaveKey(HavePrefix(appsv1alpha1.LifecycleDomain)))
		Expect(requests.mostAtOnce()).To(Equal(fleet + surge))
		p.expectNoFailedDelete(ctx, deployment)
	})

	It("undoes what waits when it is paused, and goes on when it resumes", func(ctx context.Context) {
		before := p.list(ctx)
		restart(ctx)
		Eventually(ctx, p.list).Should(And(HaveLen(fleet+surge), ContainElement(expect.BeWaiting(podDelete))))
		p.kubectl(ctx, "--namespace", p.namespace, "rollout", "pause", "deployment/web")
		Eventually(ctx, p.list).Should(And(HaveLen(fleet+surge), HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle()))))
		stop := approveOneByOne(p, before)
		defer stop()
		Consistently(ctx, p.list).Should(And(HaveLen(fleet+surge), WithTransform(uids, ContainElements(uids(before)))))
		p.kubectl(ctx, "--namespace", p.namespace, "rollout", "resume", "deployment/web")
		Eventually(ctx, p.list).WithTimeout(3 * patience).Should(And(HaveLen(fleet),
			WithTransform(uids, Not(ContainElements(BeElementOf(uids(before))))), expect.All(expect.BeAvailable())))
		Expect(requests.mostAtOnce()).To(Equal(fleet + surge))
		p.expectNoFailedDelete(ctx, deployment)
	})
})

var _ = Describe("A rollout that waits, and is not wanted any more", Label(mainStories), func() {
	It("removes no pod while its new pods are not available, and goes on when they are", func(ctx context.Context) {
		p := newScenario(ctx)
		p.rule(ctx, approved())
		p.deployment(ctx, 4, func(deployment *appsv1.Deployment) {
			deployment.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{
				MaxSurge: new(intstr.FromInt32(2)), MaxUnavailable: new(intstr.FromInt32(0)),
			}
		})
		before := p.list(ctx)
		p.kubectl(ctx, "--namespace", p.namespace, "rollout", "restart", "deployment/web")
		Eventually(ctx, p.list).Should(WithTransform(waitingFor(podDelete), Equal(2)))
		fresh := slices.DeleteFunc(p.list(ctx), func(pod *corev1.Pod) bool { return slices.Contains(uids(before), pod.UID) })
		notReady := func(value string) {
			GinkgoHelper()
			for _, pod := range fresh {
				p.patch(ctx, pod, `{"metadata":{"annotations":{"test.podops.dev/not-ready":%q}}}`, value)
			}
		}
		notReady("true")
		Eventually(ctx, p.list).Should(WithTransform(waitingFor(podDelete), Equal(0)))

		By("approving the old pods")
		p.approve(ctx)
		Consistently(ctx, p.list).WithTimeout(2 * holdWindow).Should(And(
			WithTransform(uids, ContainElements(uids(before))), WithTransform(availableOf(before), Equal(4))))

		By("letting the new pods be ready again")
		notReady("false")
		stop := approveOneByOne(p, before)
		defer stop()
		Eventually(ctx, p.list).WithTimeout(3 * patience).Should(And(HaveLen(4),
			WithTransform(uids, Not(ContainElements(BeElementOf(uids(before))))), expect.All(And(expect.BeAvailable(), expect.HaveNoLifecycle()))))
		Eventually(ctx, p.annotatedSets).Should(BeEmpty())
	})

	It("removes no pod of a Deployment of the strategy Recreate that is undone", func(ctx context.Context) {
		p := newScenario(ctx)
		p.rule(ctx, approved())
		deployment := p.deployment(ctx, 2, func(deployment *appsv1.Deployment) {
			deployment.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
		})
		before := p.list(ctx)
		p.kubectl(ctx, "--namespace", p.namespace, "rollout", "restart", "deployment/web")
		Eventually(ctx, p.list).Should(WithTransform(waitingFor(podDelete), Equal(2)))
		p.patch(ctx, deployment, `{"spec":{"template":{"metadata":{"annotations":null}}}}`) // there is no revision to undo to
		Eventually(ctx, p.list).Should(HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle())))
		p.approve(ctx)
		Consistently(ctx, p.list).Should(And(HaveEach(expect.BeAvailable()), WithTransform(uids, ConsistOf(uids(before)))))

		By("rolling")
		p.kubectl(ctx, "--namespace", p.namespace, "rollout", "restart", "deployment/web")
		Eventually(ctx, p.list).WithTimeout(3 * patience).Should(And(HaveLen(2),
			WithTransform(uids, Not(ContainElements(BeElementOf(uids(before))))), expect.All(And(expect.BeAvailable(), expect.HaveNoLifecycle()))))
	})
})

// availableOf returns a function that counts the available ones of these pods.
func availableOf(pods []*corev1.Pod) func([]*corev1.Pod) int {
	these := uids(pods)
	return func(listed []*corev1.Pod) (count int) {
		for _, pod := range listed {
			if slices.Contains(these, pod.UID) && podstate.Available(pod) {
				count++
			}
		}
		return count
	}
}

var _ = Describe("A scale-in of a Deployment", Label(mainStories), func() {
	It("deletes no pod when it is withdrawn while the pods wait, and the next rollout completes", func(ctx context.Context) {
		p := newScenario(ctx)
		p.rule(ctx, approved())
		deployment := p.deployment(ctx, fleet, nil)
		before := p.list(ctx)
		p.scale(ctx, deployment, fleet/2)
		Eventually(ctx, p.list).Should(WithTransform(waitingFor(podDelete), Equal(fleet/2)))
		p.scale(ctx, deployment, fleet)
		Eventually(ctx, p.list).Should(HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle())))
		Expect(uids(p.list(ctx))).To(ConsistOf(uids(before)))

		By("rolling")
		p.kubectl(ctx, "--namespace", p.namespace, "rollout", "restart", "deployment/web")
		p.approve(ctx)
		Eventually(ctx, p.list).WithTimeout(3 * patience).Should(And(HaveLen(fleet),
			WithTransform(uids, Not(ContainElements(BeElementOf(uids(before))))), expect.All(And(expect.BeAvailable(), expect.HaveNoLifecycle()))))
	})

	It("costs few writes while it waits, past the progress deadline of the Deployment", func(ctx context.Context) {
		p := newScenario(ctx)
		p.rule(ctx, approved())
		deployment := p.deployment(ctx, 4, func(deployment *appsv1.Deployment) { deployment.Spec.ProgressDeadlineSeconds = new(int32(2)) })
		ledger := openLedger(p)
		p.scale(ctx, deployment, 2)
		Eventually(ctx, p.list).Should(WithTransform(waitingFor(podDelete), Equal(2)))
		deletes := func() int {
			return len(ledger.byAllUsers(audit.On("pods"), audit.Verb("delete"), audit.InNamespace(p.namespace)))
		}
		writes := func() int {
			return len(ledger.byAllUsers(audit.On("replicasets"), audit.InNamespace(p.namespace))) +
				len(ledger.byAllUsers(audit.On("replicasets/status"), audit.InNamespace(p.namespace))) +
				len(ledger.byAllUsers(audit.On("deployments/status"), audit.InNamespace(p.namespace)))
		}
		settled := awaitSettled(ctx, writes)
		Consistently(ctx, writes).WithTimeout(2 * holdWindow).Should(Equal(settled))
		AddReportEntry("figures", map[string]any{"writes to ReplicaSets and status": settled, "deletes": deletes()})
		Expect(p.list(ctx)).To(HaveLen(4))
	})

	It("deletes exactly the requested pods when an autoscaler writes its scale", func(ctx context.Context) {
		p := newScenario(ctx)
		p.rule(ctx, maxUnavailable("2"))
		deployment := p.deployment(ctx, fleet, nil)
		observer := observe(p)
		scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: fleet / 2}}
		Expect(p.admin.SubResource("scale").Update(ctx, deployment, client.WithSubResourceBody(scale))).To(Succeed())
		p.awaitAvailable(ctx, fleet/2)
		Expect(observer.leastAvailable()).To(Equal(fleet / 2))
	})

	It("goes on when the rule that withholds it is disabled", func(ctx context.Context) {
		p := newScenario(ctx)
		p.rule(ctx, approved())
		deployment := p.deployment(ctx, fleet, nil)
		p.scale(ctx, deployment, fleet/2)
		Eventually(ctx, p.list).Should(WithTransform(waitingFor(podDelete), Equal(fleet/2)))
		for _, rule := range p.listRules(ctx) {
			// The manager writes the status between the two requests.
			Eventually(ctx, func(ctx context.Context) error {
				if err := p.admin.Get(ctx, client.ObjectKeyFromObject(rule), rule); err != nil {
					return err
				}
				rule.Spec.Rules[0].Disabled = true
				return p.admin.Update(ctx, rule)
			}).Should(Succeed())
		}
		Eventually(ctx, p.list).Should(And(HaveLen(fleet/2), HaveEach(expect.BeAvailable())))
	})

	It("takes the pods of other owners' choice when some have no control label", func(ctx context.Context) {
		p := newScenario(ctx)
		p.rule(ctx, approved())
		set := p.replicaSet(ctx, 3)
		stranger := p.list(ctx)[0]
		p.patch(ctx, stranger, `{"metadata":{"labels":{%q:null},"annotations":{"controller.kubernetes.io/pod-deletion-cost":"-1"}}}`, appsv1alpha1.ControlLabelKey)
		p.scale(ctx, set, 2)
		Eventually(ctx, p.list).Should(And(HaveLen(2), WithTransform(uids, Not(ContainElement(stranger.UID)))))

		By("then a pod with it, under its rules")
		p.scale(ctx, set, 1)
		Eventually(ctx, p.list).Should(WithTransform(waitingFor(podDelete), Equal(1)))
		p.approve(ctx)
		Eventually(ctx, p.list).Should(And(HaveLen(1), HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle()))))
	})
})

var _ = Describe("A Deployment of the strategy Recreate", func() {
	It("is reported under a rule below 100 %, at admission and as a condition", func(ctx context.Context) {
		p := newScenario(ctx)
		p.rule(ctx, maxUnavailable("50%"))
		p.deployment(ctx, 4, func(deployment *appsv1.Deployment) {
			deployment.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
		})
		_, warned := p.kubectl(ctx, "--namespace", p.namespace, "rollout", "restart", "deployment/web")
		Expect(warned).To(ContainSubstring("a rollout never finishes under an availability rule below 100 %"))
		stalled := func(ctx context.Context) []metav1.Condition { return p.listRules(ctx)[0].Status.Conditions }
		Eventually(ctx, stalled).Should(ContainElement(And(
			HaveField("Reason", appsv1alpha1.ReasonNeverFinishes), HaveField("Status", metav1.ConditionTrue))))
		Eventually(ctx, p.list).Should(HaveLen(2))
		Consistently(ctx, p.list).Should(HaveLen(2), "half of the pods stay, and no new pod comes")

		By("taking the way out")
		p.kubectl(ctx, "--namespace", p.namespace, "patch", "deployment", "web", "--patch",
			`{"spec":{"strategy":{"$retainKeys":["type"],"type":"RollingUpdate"}}}`)
		Eventually(ctx, p.list).Should(And(HaveLen(4), expect.All(And(expect.BeAvailable(), expect.HaveNoLifecycle()))))
		Eventually(ctx, stalled).ShouldNot(ContainElement(HaveField("Reason", appsv1alpha1.ReasonNeverFinishes)))
	})
})

var _ = Describe("Two Deployments under one rule", func() {
	It("roll together within the rule and within the surge of each", func(ctx context.Context) {
		p := newScenario(ctx)
		p.rule(ctx, maxUnavailable("2"))
		first := p.deployment(ctx, fleet/2, nil)
		second := first.DeepCopy()
		second.ObjectMeta = metav1.ObjectMeta{Namespace: p.namespace, Name: "other"}
		second.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web", "part": "other"}}
		second.Spec.Template.Labels["part"] = "other"
		Expect(p.admin.Create(ctx, second)).To(Succeed())
		p.awaitAvailable(ctx, fleet)
		before, requests, observer := p.list(ctx), countRequests(p), observe(p)
		p.kubectl(ctx, "--namespace", p.namespace, "rollout", "restart", "deployment/web", "deployment/other")
		Eventually(ctx, p.list).WithTimeout(3 * patience).Should(And(HaveLen(fleet),
			WithTransform(uids, Not(ContainElements(BeElementOf(uids(before))))),
			expect.All(And(expect.BeAvailable(), expect.HaveNoLifecycle()))))
		Expect(requests.mostAtOnce()).To(BeNumerically("<=", fleet+2*2))
		Expect(observer.leastAvailable()).To(BeNumerically(">=", fleet-2))
		p.expectNoFailedDelete(ctx, first)
		p.expectNoFailedDelete(ctx, second)
	})
})

var _ = Describe("A scale-in that waits, without a manager", func() {
	var p scenario
	var deployment *appsv1.Deployment

	BeforeEach(func(ctx context.Context) {
		p = newScenario(ctx)
		p.rule(ctx, approved())
		deployment = p.deployment(ctx, fleet, nil)
		p.scale(ctx, deployment, fleet/2)
		Eventually(ctx, p.list).Should(WithTransform(waitingFor(podDelete), Equal(fleet/2)))
		managers.stopAll()
	})

	It("continues without a manager, and a manager that starts again restores the other pods", func(ctx context.Context) {
		DeferCleanup(func(ctx context.Context) {
			if len(managers.running()) == 0 {
				managers.start(ctx)
			}
		})
		began := time.Now()
		p.scale(ctx, deployment, fleet/3)
		Eventually(ctx, p.list).Should(HaveLen(fleet / 3))
		AddReportEntry("figures", map[string]any{"scaled in after": time.Since(began).String()})

		managers.start(ctx)
		Eventually(ctx, p.list).Should(And(HaveLen(fleet/3), HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle()))))
		Eventually(ctx, p.annotatedSets).Should(BeEmpty())
		Consistently(ctx, p.list).Should(HaveLen(fleet / 3))
	})

	It("goes on after an uninstall", func(ctx context.Context) {
		DeferCleanup(func(ctx context.Context) {
			p.kubectl(ctx, "apply", "--server-side", "--force-conflicts", "-k", filepath.Join("..", "..", "config", "local"))
			managers.start(ctx)
		})
		_, _, code := p.podops(ctx, "uninstall", "--keep-manifests", "--all-finalizers")
		Expect(code).To(Equal(0))
		policies, _ := p.kubectl(ctx, "get", "validatingadmissionpolicies,validatingadmissionpolicybindings", "-o", "name")
		Expect(policies).NotTo(ContainSubstring("podops"))
		Eventually(ctx, p.list).Should(And(HaveLen(fleet/2), HaveEach(expect.BeReady())))
		for _, pod := range p.list(ctx) {
			Expect(pod.Annotations).NotTo(HaveKey(corev1.PodDeletionCost))
		}
		Eventually(ctx, p.annotatedSets).Should(BeEmpty())
	})
})

var _ = Describe("A ReplicaSet alone", Label(mainStories), func() {
	It("is lowered as requested, and its pods leave as they may; a higher number withdraws it", func(ctx context.Context) {
		p := newScenario(ctx)
		p.rule(ctx, approved())
		set := p.replicaSet(ctx, 4)
		before := p.list(ctx)
		p.patch(ctx, set, `{"spec":{"replicas":2}}`)
		Expect(*set.Spec.Replicas).To(BeEquivalentTo(2))
		Eventually(ctx, p.list).Should(WithTransform(waitingFor(podDelete), Equal(2)))
		Expect(uids(p.list(ctx))).To(ConsistOf(uids(before)))

		By("withdrawing it by its scale")
		p.kubectl(ctx, "--namespace", p.namespace, "scale", "replicaset/web", "--replicas=4")
		Eventually(ctx, p.list).Should(HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle())))
		Expect(uids(p.list(ctx))).To(ConsistOf(uids(before)))

		By("carrying it out")
		p.kubectl(ctx, "--namespace", p.namespace, "scale", "replicaset/web", "--replicas=2")
		Eventually(ctx, p.list).Should(WithTransform(waitingFor(podDelete), Equal(2)))
		p.approve(ctx)
		Eventually(ctx, p.list).Should(And(HaveLen(2), HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle()))))
	})

	It("leaves its orphans in service, whose deletion has begun", func(ctx context.Context) {
		p := newScenario(ctx)
		p.rule(ctx, approved())
		set := p.replicaSet(ctx, 3)
		p.scale(ctx, set, 1)
		Eventually(ctx, p.list).Should(WithTransform(waitingFor(podDelete), Equal(2)))
		Expect(p.admin.Delete(ctx, set, client.PropagationPolicy(metav1.DeletePropagationOrphan))).To(Succeed())
		Eventually(ctx, p.list).Should(And(HaveLen(3), HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle()))))
		for _, pod := range p.list(ctx) {
			Expect(pod.Annotations).NotTo(HaveKey(corev1.PodDeletionCost))
		}
		p.approve(ctx)
		Consistently(ctx, p.list).WithTimeout(2 * holdWindow).Should(And(HaveLen(3), HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle()))))
	})
})

// awaitSettled waits until a number has not changed for the time that scenarios check that something does not happen,
// and returns the number.
func awaitSettled(ctx context.Context, number func() int) int {
	GinkgoHelper()
	last, since := number(), time.Now()
	Eventually(ctx, func() time.Duration {
		if now := number(); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since)
	}).Should(BeNumerically(">", holdWindow))
	return last
}

// expectNoFailedDelete fails if a delete of the namespace failed, or a ReplicaSet of the Deployment.
func (p scenario) expectNoFailedDelete(ctx context.Context, deployment *appsv1.Deployment) {
	GinkgoHelper()
	Expect(p.eventReasons(ctx)).NotTo(ContainElement("FailedDelete"))
	Expect(p.admin.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
	for _, condition := range deployment.Status.Conditions {
		Expect(condition.Type).NotTo(Equal(appsv1.DeploymentReplicaFailure))
	}
}

// eventReasons returns the reasons of the events of the namespace.
func (p scenario) eventReasons(ctx context.Context) []string {
	GinkgoHelper()
	list := &eventsv1.EventList{}
	Expect(p.admin.List(ctx, list, client.InNamespace(p.namespace))).To(Succeed())
	var found []string
	for _, event := range list.Items {
		found = append(found, event.Reason)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// annotatedSets returns the ReplicaSets with an annotation of PodOps.
func (p scenario) annotatedSets(ctx context.Context) []appsv1.ReplicaSet {
	GinkgoHelper()
	list := &appsv1.ReplicaSetList{}
	Expect(p.admin.List(ctx, list, client.InNamespace(p.namespace))).To(Succeed())
	return slices.DeleteFunc(list.Items, func(set appsv1.ReplicaSet) bool {
		return !slices.ContainsFunc(slices.Collect(maps.Keys(set.Annotations)), func(key string) bool {
			return strings.HasPrefix(key, appsv1alpha1.LifecycleDomain)
		})
	})
}

// waitingFor returns a function that counts the pods whose lifecycle of the id waits for a rule.
func waitingFor(id string) func([]*corev1.Pod) int {
	return func(pods []*corev1.Pod) int {
		count := 0
		for _, pod := range pods {
			if _, ok := pod.Labels[appsv1alpha1.PreCheckLabelPrefix+"/"+id]; ok {
				count++
			}
		}
		return count
	}
}

// approveOneByOne approves one of the pods at a time, as soon as it waits for its deletion.
func approveOneByOne(p scenario, pods []*corev1.Pod) (stop func()) {
	old := uids(pods)
	return act(p, func(pod *corev1.Pod) wish {
		if slices.Contains(old, pod.UID) && waitingFor(podDelete)([]*corev1.Pod{pod}) == 1 && pod.Labels[approvedLabel] == "" {
			return wish{Metadata: metadata{Labels: map[string]any{approvedLabel: "true"}}}
		}
		return wish{}
	})
}

// approveOthers approves every pod but these.
func approveOthers(p scenario, pods []*corev1.Pod) (stop func()) {
	old := uids(pods)
	return act(p, func(pod *corev1.Pod) wish {
		if !slices.Contains(old, pod.UID) && pod.Labels[approvedLabel] == "" {
			return wish{Metadata: metadata{Labels: map[string]any{approvedLabel: "true"}}}
		}
		return wish{}
	})
}

// requests sums with its own watch the replicas that the ReplicaSets of a scenario request. There may be one
// pod more for a moment: different workers create pods of one ReplicaSet and delete pods of another.
type requests struct {
	mu       sync.Mutex
	replicas map[types.UID]int
	most     int
}

// countRequests starts counting.
func countRequests(p scenario) *requests {
	GinkgoHelper()
	r := &requests{replicas: map[types.UID]int{}}
	list := &appsv1.ReplicaSetList{}
	follow(p, list, func() []*appsv1.ReplicaSet { return pointers(list.Items) }, r.see)
	return r
}

func (r *requests) see(kind watch.EventType, set *appsv1.ReplicaSet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replicas[set.UID] = int(*set.Spec.Replicas)
	if kind == watch.Deleted {
		delete(r.replicas, set.UID)
	}
	sum := 0
	for _, replicas := range r.replicas {
		sum += replicas
	}
	r.most = max(r.most, sum)
}

// mostAtOnce returns the largest number of replicas so far that were requested at the same time.
func (r *requests) mostAtOnce() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.most
}
