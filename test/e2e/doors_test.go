package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	podwebhook "github.com/podops-dev/podops/pkg/webhooks/pod"
	"github.com/podops-dev/podops/test/expect"
)

var _ = Describe("A request to remove a pod", Label(mainStories), func() {
	var p scenario

	BeforeEach(func(ctx context.Context) {
		p = newScenario(ctx)
		p.rule(ctx, approved())
	})

	Context("by the controller of a StatefulSet", func() {
		It("is deferred in a rolling update, which goes on pod by pod", func(ctx context.Context) {
			p.newStatefulSet(ctx, 3)
			before := p.list(ctx)
			observer := observe(p)
			p.kubectl(ctx, "--namespace", p.namespace, "rollout", "restart", "statefulset/db")
			Eventually(ctx, p.seeing("db-2")).Should(And(expect.BeWaiting(podDelete), haveRecord("Owner")))
			Consistently(ctx, p.list).Should(WithTransform(uids, ConsistOf(uids(before))))

			p.approveAll(ctx, before)
			Eventually(ctx, p.list).Should(And(HaveLen(3), expect.All(expect.BeAvailable()), WithTransform(uids, Not(ContainElements(BeElementOf(uids(before)))))))
			Expect(observer.leastAvailable()).To(Equal(2))
			Expect(p.events(ctx)).NotTo(ContainElement(HaveField("Reason", "DeletedUnguarded")))
		})

		It("is cancelled when the update is rolled back", func(ctx context.Context) {
			set := p.newStatefulSet(ctx, 2)
			before := p.list(ctx)
			p.patch(ctx, set, `{"spec":{"template":{"metadata":{"annotations":{"e2e.podops.dev/revision":"2"}}}}}`)
			Eventually(ctx, p.seeing("db-1")).Should(expect.BeWaiting(podDelete))
			p.patch(ctx, set, `{"spec":{"template":{"metadata":{"annotations":{"e2e.podops.dev/revision":null}}}}}`)
			Eventually(ctx, p.seeing("db-1")).Should(And(expect.HaveNoLifecycle(), expect.BeAvailable(), haveRecord("")))
			Expect(uids(p.list(ctx))).To(ConsistOf(uids(before)))
		})

		It("is deferred in a scale-in", func(ctx context.Context) {
			set := p.newStatefulSet(ctx, 2)
			p.scale(ctx, set, 1)
			Eventually(ctx, p.seeing("db-1")).Should(expect.BeWaiting(podDelete))
			p.approveAll(ctx, p.list(ctx))
			p.awaitAvailable(ctx, 1)
		})
	})

	It("by the controller of a DaemonSet is deferred, and the update finishes", func(ctx context.Context) {
		set := p.newDaemonSet(ctx)
		before := p.list(ctx)
		p.kubectl(ctx, "--namespace", p.namespace, "rollout", "restart", "daemonset/agent")
		Eventually(ctx, p.list).Should(ContainElement(And(expect.BeWaiting(podDelete), haveRecord("Owner"))))
		Consistently(ctx, p.list).Should(WithTransform(uids, ConsistOf(uids(before))))
		p.approveAll(ctx, before)
		Eventually(ctx, p.list).Should(And(HaveLen(len(before)), expect.All(expect.BeAvailable()), WithTransform(uids, Not(ContainElements(BeElementOf(uids(before)))))))
		Expect(p.admin.Get(ctx, client.ObjectKeyFromObject(set), set)).To(Succeed())
	})

	Context("by a Job", func() {
		It("is deferred when the Job is suspended", func(ctx context.Context) {
			job := p.newJob(ctx, nil)
			p.awaitAvailable(ctx, 1)
			p.patch(ctx, job, `{"spec":{"suspend":true}}`)
			Eventually(ctx, p.list).Should(ConsistOf(And(expect.BeWaiting(podDelete), haveRecord("Owner"))))
			p.approveAll(ctx, p.list(ctx))
			Eventually(ctx, p.list).Should(BeEmpty())
		})

		It("keeps the result of a pod that completes while its delete waits", func(ctx context.Context) {
			job := p.newJob(ctx, nil)
			p.awaitAvailable(ctx, 1)
			p.patch(ctx, job, `{"spec":{"suspend":true}}`)
			Eventually(ctx, p.list).Should(ConsistOf(And(expect.BeWaiting(podDelete), haveRecord("Owner"))))
			p.patch(ctx, p.list(ctx)[0], `{"metadata":{"annotations":{"test.podops.dev/complete-after":"1ms"}}}`)
			Eventually(ctx, func(ctx context.Context) (batchv1.JobStatus, error) {
				err := p.admin.Get(ctx, client.ObjectKeyFromObject(job), job)
				return job.Status, err
			}).WithTimeout(4 * patience).Should(And(HaveField("Succeeded", int32(1)), HaveField("Active", int32(0)))) // the Job controller backs off, up to a minute
		})

		It("passes when the pod has completed", func(ctx context.Context) {
			p.newJob(ctx, map[string]string{"test.podops.dev/complete-after": "1ms"})
			Eventually(ctx, p.list).Should(ConsistOf(HaveField("Status.Phase", corev1.PodSucceeded)))
			p.kubectl(ctx, "--namespace", p.namespace, "delete", "pod", p.list(ctx)[0].Name)
			Eventually(ctx, p.list).Should(BeEmpty())
		})
	})

	Context("by kubectl delete", func() {
		It("is refused while a rule withholds the pod, and nothing follows once the rule passes", func(ctx context.Context) {
			p.pods(ctx, 1, nil)
			complaints := p.refusedDelete(ctx, "web-00")
			Expect(complaints).To(And(ContainSubstring("PodOps holds this delete: web/approved withholds it (LabelMismatch: "), ContainSubstring("not carried out later"),
				ContainSubstring("kubectl label pod web-00 -n "+p.namespace+" collaset.kusionstack.io/to-delete=true")))
			Expect(p.get(ctx, "web-00")).To(And(expect.BeWaiting(podDelete), haveRecord("Client"), expect.BeAvailable()))
			Eventually(ctx, p.seeing("web-00")).WithTimeout(patience).Should(And(expect.HaveNoLifecycle(), haveRecord("")))
			Eventually(ctx, p.events).Should(ContainElement(HaveField("Reason", "DeleteUndone")))

			p.approveAll(ctx, p.list(ctx))
			Consistently(ctx, p.seeing("web-00")).Should(And(expect.BeAvailable(), expect.HaveNoLifecycle()))
			By("carrying out a request that is repeated")
			p.kubectl(ctx, "--namespace", p.namespace, "delete", "pod", "web-00")
			Expect(p.list(ctx)).To(BeEmpty())
		})

		It("is carried out for three pods, one after the other, with the rights of the client", func(ctx context.Context) {
			p.replicaSet(ctx, 4)
			p.approveAll(ctx, p.list(ctx))
			for _, pod := range p.list(ctx)[:3] {
				p.kubectl(ctx, "--namespace", p.namespace, "delete", "pod", pod.Name)
			}
			Expect(p.events(ctx)).NotTo(ContainElement(HaveField("Reason", BeElementOf("DeleteFinished", "DeletedUnguarded"))))
		})

		It("is not carried out when another policy denies it, and the pod goes back into service", func(ctx context.Context) {
			p.pods(ctx, 1, nil)
			p.denyDeletes(ctx)
			p.approveAll(ctx, p.list(ctx))
			pod := p.get(ctx, "web-00")
			Eventually(ctx, func(ctx context.Context) error { return p.admin.Delete(ctx, pod) }).Should(expect.BeRefused(422, "not here"))
			Eventually(ctx, p.seeing("web-00")).WithTimeout(patience).Should(And(expect.BeAvailable(), expect.HaveNoLifecycle(), HaveField("UID", pod.UID)))
		})

		It("waits for the rules of deletes while an operation of another type may run", func(ctx context.Context) {
			p.pods(ctx, 1, nil)
			p.skipRules(ctx, p.get(ctx, "web-00"), "approved")
			p.begin(ctx, p.get(ctx, "web-00"), "updater", "update")
			Eventually(ctx, p.seeing("web-00")).Should(expect.BeOperable("updater"))
			p.skipRules(ctx, p.get(ctx, "web-00"))
			Expect(p.refusedDelete(ctx, "web-00")).To(ContainSubstring("web/approved withholds it"))
			Expect(p.list(ctx)).To(HaveLen(1))
		})

		It("is cancelled by the undo of its operation", func(ctx context.Context) {
			p.pods(ctx, 1, nil)
			p.refusedDelete(ctx, "web-00")
			Eventually(ctx, p.seeing("web-00")).Should(expect.BeWaiting(podDelete))
			p.kubectl(ctx, "--namespace", p.namespace, "label", "pod", "web-00", "undo-operation-type.podopslifecycle.kusionstack.io/pod-delete=delete")
			Consistently(ctx, p.seeing("web-00")).Should(And(expect.BeAvailable(), expect.HaveNoLifecycle(), haveRecord("")))
		})

		It("passes with --force --grace-period=0, and leaves an event and a metric", func(ctx context.Context) {
			p.replicaSet(ctx, 2)
			victim := p.list(ctx)[0]
			p.kubectl(ctx, "--namespace", p.namespace, "delete", "pod", victim.Name, "--force", "--grace-period=0")
			Eventually(ctx, p.events).Should(ContainElement(And(
				HaveField("Reason", "DeletedUnguarded"), HaveField("InvolvedObject.Kind", "ReplicaSet"), HaveField("Message", ContainSubstring(victim.Name)))))
			p.awaitAvailable(ctx, 2)
		})

		It("of a collection ends at the first pod that is withheld", func(ctx context.Context) {
			p.pods(ctx, 2, nil)
			before := p.list(ctx)
			Expect(p.admin.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(p.namespace))).To(expect.BeRefused(429, "web/approved withholds it"))
			Expect(uids(p.list(ctx))).To(ConsistOf(uids(before)))
		})
	})

	It("by the label to-delete begins, is cancelled without the label, and is carried out", func(ctx context.Context) {
		p.pods(ctx, 1, nil)
		p.setLabels(ctx, p.get(ctx, "web-00"), map[string]any{appsv1alpha1.ToDeleteLabelKey: "true"})
		Eventually(ctx, p.seeing("web-00")).Should(And(expect.BeWaiting(podDelete), haveRecord("Label")))
		p.setLabels(ctx, p.get(ctx, "web-00"), map[string]any{appsv1alpha1.ToDeleteLabelKey: nil})
		Eventually(ctx, p.seeing("web-00")).Should(And(expect.BeAvailable(), expect.HaveNoLifecycle()))

		p.setLabels(ctx, p.get(ctx, "web-00"), map[string]any{appsv1alpha1.ToDeleteLabelKey: "true", approvedLabel: "true"})
		Eventually(ctx, p.list).Should(BeEmpty())
	})

	It("is not recorded in the name of PodOps by anyone else", func(ctx context.Context) {
		p.pods(ctx, 1, nil)
		forged := client.RawPatch(apitypes.MergePatchType, []byte(`{"metadata":{"annotations":{"podopslifecycle.kusionstack.io/pending-delete":"{}"}}}`))
		Expect(p.admin.Patch(ctx, p.get(ctx, "web-00"), forged)).To(expect.BeRefused(403, "only PodOps sets"))
	})

	It("leaves no record when any client may have sent its review", func(ctx context.Context) {
		p.pods(ctx, 1, nil)
		review := deletion(p.get(ctx, "web-00"))
		review.Request.UserInfo.Username, review.Request.DryRun = "jane", nil
		answer := forge(ctx, managers.leaders()[0], podwebhook.DeletePath, review)
		Expect(answer.Allowed).To(BeFalse())
		Expect(answer.Result.Message).To(HavePrefix("PodOps holds this delete; try again in a minute."))
		guessed := forge(ctx, managers.leaders()[0], podwebhook.DeletePath+"/token-0", review)
		Expect(guessed.Result.Message).To(Equal(answer.Result.Message))
		Consistently(ctx, p.seeing("web-00")).Should(And(expect.BeAvailable(), expect.HaveNoLifecycle(), haveRecord("")))
	})

	Context("by an eviction", func() {
		evict := func(ctx context.Context, pod *corev1.Pod, options *metav1.DeleteOptions) error {
			return p.admin.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{
				ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, DeleteOptions: options,
			})
		}

		It("of an earlier pod of the name fails with a conflict", func(ctx context.Context) {
			p.pods(ctx, 1, nil)
			stale := apitypes.UID("2f3c1f6e-0000-4000-8000-000000000000")
			Expect(evict(ctx, p.get(ctx, "web-00"), &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &stale}})).To(expect.BeRefused(409))
			Consistently(ctx, p.seeing("web-00")).Should(And(expect.BeAvailable(), expect.HaveNoLifecycle()))
		})

		It("passes when it is repeated once the rule passes", func(ctx context.Context) {
			p.pods(ctx, 1, nil)
			Expect(evict(ctx, p.get(ctx, "web-00"), nil)).To(expect.BeRefused(429, "PodOps holds this eviction: web/approved withholds it"))
			Expect(p.get(ctx, "web-00")).To(And(expect.BeWaiting(podDelete), haveRecord("Evictor")))
			p.approveAll(ctx, p.list(ctx))
			Eventually(ctx, func(ctx context.Context) error { return evict(ctx, p.get(ctx, "web-00"), nil) }).Should(Succeed())
			Eventually(ctx, p.list).Should(BeEmpty())
		})

		It("is granted as often as a limit of its client allows", func(ctx context.Context) {
			p.replicaSet(ctx, 6)
			granted := func(limit int) (evicted int) {
				for _, pod := range p.list(ctx) {
					if evicted < limit && evict(ctx, pod, nil) == nil {
						evicted++
					}
				}
				return evicted
			}
			By("refusing all pods, of which one is recorded")
			before := p.list(ctx)
			Expect(granted(1)).To(BeZero())
			Expect(p.list(ctx)).To(ContainElement(haveRecord("Evictor")))
			waiting := 0
			for _, pod := range p.list(ctx) {
				if pod.Annotations[appsv1alpha1.PendingDeleteAnnotationKey] != "" {
					waiting++
				}
			}
			Expect(waiting).To(Equal(1))
			Eventually(ctx, p.list).WithTimeout(patience).Should(HaveEach(expect.HaveNoLifecycle()))

			By("evicting two, once the rule passes")
			p.approveAll(ctx, before)
			Expect(granted(2)).To(Equal(2))
			p.awaitAvailable(ctx, 6)
			Consistently(ctx, func(ctx context.Context) []apitypes.UID { return uids(p.list(ctx)) }).Should(ContainElements(uids(before)[2:]))
		})
	})

	Context("by kubectl drain", func() {
		var node, selector string

		BeforeEach(func(ctx context.Context) {
			selector = "e2e.podops.dev/scenario=" + p.namespace
			p.deployment(ctx, 4, func(deployment *appsv1.Deployment) {
				deployment.Spec.Template.Labels["e2e.podops.dev/scenario"] = p.namespace
			})
			node = p.list(ctx)[0].Spec.NodeName
			DeferCleanup(func(ctx context.Context) { p.kubectl(ctx, "uncordon", node) })
		})
		onNode := func(ctx context.Context) []*corev1.Pod {
			var found []*corev1.Pod
			for _, pod := range p.list(ctx) {
				if pod.Spec.NodeName == node {
					found = append(found, pod)
				}
			}
			return found
		}

		It("waits until the rule passes, and drains the node then", func(ctx context.Context) {
			before := onNode(ctx)
			ended := make(chan string, 1)
			go func() {
				defer GinkgoRecover()
				out, complaints, err := p.tryKubectl(ctx, "drain", node, "--pod-selector", selector, "--timeout=90s")
				Expect(err).NotTo(HaveOccurred(), complaints)
				ended <- out + complaints
			}()
			Eventually(ctx, onNode).Should(HaveEach(And(expect.BeWaiting(podDelete), haveRecord("Evictor"))))
			Consistently(ctx, onNode).Should(WithTransform(uids, ConsistOf(uids(before))))
			p.approveAll(ctx, before)
			Eventually(ctx, ended).Should(Receive(And(ContainSubstring("drained"), ContainSubstring("PodOps holds this eviction"))))
			Expect(onNode(ctx)).To(BeEmpty())
			p.awaitAvailable(ctx, 4)
		})

		It("changes nothing with --dry-run=server", func(ctx context.Context) {
			_, complaints, err := p.tryKubectl(ctx, "drain", node, "--pod-selector", selector, "--dry-run=server", "--timeout=2s")
			Expect(err).To(HaveOccurred())
			Expect(complaints).To(ContainSubstring("PodOps holds this eviction"))
			Consistently(ctx, p.list).Should(HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle())))
		})

		It("stops at the first pod with --disable-eviction, which is not deleted later", func(ctx context.Context) {
			before := onNode(ctx)
			_, complaints, err := p.tryKubectl(ctx, "drain", node, "--pod-selector", selector, "--disable-eviction", "--timeout=20s")
			Expect(err).To(HaveOccurred())
			Expect(complaints).To(ContainSubstring("PodOps holds this delete: web/approved withholds it"))
			Eventually(ctx, onNode).WithTimeout(patience).Should(HaveEach(expect.HaveNoLifecycle()))
			p.approveAll(ctx, before)
			Consistently(ctx, onNode).Should(WithTransform(uids, ConsistOf(uids(before))))
		})
	})

	It("by kubectl drain of a StatefulSet evicts each pod of the node once", func(ctx context.Context) {
		set := p.newStatefulSet(ctx, 3)
		p.patch(ctx, set, `{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`)
		for _, pod := range p.list(ctx) {
			p.setLabels(ctx, pod, map[string]any{approvedLabel: "true", "e2e.podops.dev/scenario": p.namespace})
		}
		before := p.list(ctx)
		node := before[0].Spec.NodeName
		DeferCleanup(func(ctx context.Context) { p.kubectl(ctx, "uncordon", node) })
		p.kubectl(ctx, "drain", node, "--pod-selector", "e2e.podops.dev/scenario="+p.namespace, "--timeout=60s")
		p.awaitAvailable(ctx, 3)
		for _, pod := range before {
			stays := ContainElement(pod.UID)
			if pod.Spec.NodeName == node {
				stays = Not(stays)
			}
			Expect(uids(p.list(ctx))).To(stays, pod.Name)
		}
	})

	It("by a NoExecute taint passes, and leaves an event", func(ctx context.Context) {
		p.newStatefulSet(ctx, 1)
		pod := p.get(ctx, "db-0")
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: pod.Spec.NodeName}}
		p.patch(ctx, node, `{"spec":{"taints":[{"key":"e2e.podops.dev/broken","effect":"NoExecute"}]}}`)
		DeferCleanup(func(ctx context.Context) { p.patch(ctx, node, `{"spec":{"taints":null}}`) })
		Eventually(ctx, p.seeing("db-0")).Should(And(expect.BeAvailable(), HaveField("UID", Not(Equal(pod.UID)))))
		Eventually(ctx, p.events).Should(ContainElement(And(
			HaveField("Reason", "DeletedUnguarded"), HaveField("InvolvedObject.Kind", "StatefulSet"), HaveField("Message", ContainSubstring("NoExecute taint")))))
	})

	DescribeTable("by the deletion of its StatefulSet", func(ctx context.Context, propagation metav1.DeletionPropagation, left int) {
		set := p.newStatefulSet(ctx, 2)
		before := p.list(ctx)
		Expect(p.admin.Delete(ctx, set, client.PropagationPolicy(propagation))).To(Succeed())
		Eventually(ctx, p.list).Should(HaveLen(left))
		Consistently(ctx, p.list).Should(HaveLen(left))
		Expect(uids(before)).To(ContainElements(uids(p.list(ctx))))
	},
		Entry("passes in the background", metav1.DeletePropagationBackground, 0),
		Entry("passes in the foreground", metav1.DeletePropagationForeground, 0),
		Entry("leaves orphans in service", metav1.DeletePropagationOrphan, 2),
	)

	It("by the deletion of its namespace passes while requests are pending", func(ctx context.Context) {
		p.newStatefulSet(ctx, 1)
		p.refusedDelete(ctx, "db-0")
		Eventually(ctx, p.seeing("db-0")).Should(expect.BeWaiting(podDelete))
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}
		Expect(p.admin.Delete(ctx, namespace)).To(Succeed())
		Eventually(ctx, func(ctx context.Context) error {
			return p.admin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)
		}).Should(expect.BeRefused(404))
	})
})

// refusedDelete deletes a pod with kubectl, and returns the complaint.
func (p scenario) refusedDelete(ctx context.Context, name string) string {
	GinkgoHelper()
	_, complaints, err := p.tryKubectl(ctx, "--namespace", p.namespace, "delete", "pod", name)
	Expect(err).To(HaveOccurred())
	return complaints
}

// denyDeletes makes a policy of the cluster deny every delete of a pod of the scenario.
func (p scenario) denyDeletes(ctx context.Context) {
	GinkgoHelper()
	p.review(ctx, admissionregistrationv1.Delete, admissionregistrationv1.Validation{Expression: "false", Message: "not here"})
	// The API server compiles the policy a moment later.
	Eventually(ctx, func(ctx context.Context) error { return p.admin.Delete(ctx, p.list(ctx)[0], client.DryRunAll, forced) }).Should(expect.BeRefused(422, "not here"))
}

// review adds another policy beside those of PodOps, which validates requests for pods in the scenario.
func (p scenario) review(ctx context.Context, operation admissionregistrationv1.OperationType, validation admissionregistrationv1.Validation) {
	GinkgoHelper()
	p.reviewing(ctx, admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{operation},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
	}, validation)
}

// reviewing does the same for requests that match a rule.
func (p scenario) reviewing(ctx context.Context, rule admissionregistrationv1.RuleWithOperations, validation admissionregistrationv1.Validation) {
	GinkgoHelper()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}
	policy.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: p.namespace}},
		ResourceRules:     []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: rule}},
	}
	policy.Spec.Validations = []admissionregistrationv1.Validation{validation}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}
	binding.Spec.PolicyName = policy.Name
	binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	for _, object := range []client.Object{policy, binding} {
		Expect(p.admin.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(p.admin.Delete(ctx, object))).To(Succeed()) })
	}
}

// skipRules makes a pod skip rules.
func (p scenario) skipRules(ctx context.Context, pod *corev1.Pod, names ...string) {
	GinkgoHelper()
	value, err := json.Marshal(map[string][]string{"skipRules": names})
	Expect(err).NotTo(HaveOccurred())
	p.patch(ctx, pod, `{"metadata":{"annotations":{%q:%q}}}`, appsv1alpha1.SkipRulesAnnotationKey, value)
}

// haveRecord matches a pod whose pending delete is of a class of clients; empty: it has none.
func haveRecord(actor string) types.GomegaMatcher {
	record := func(pod *corev1.Pod) string { return pod.Annotations[appsv1alpha1.PendingDeleteAnnotationKey] }
	if actor == "" {
		return WithTransform(record, BeEmpty())
	}
	return WithTransform(record, ContainSubstring(`"actor":"`+actor+`"`))
}

// approveAll sets the label that the rule approved requires.
func (p scenario) approveAll(ctx context.Context, pods []*corev1.Pod) {
	GinkgoHelper()
	for _, pod := range pods {
		p.label(ctx, pod, approvedLabel, "true")
	}
}

// events returns the events of the scenario.
func (p scenario) events(ctx context.Context) []corev1.Event {
	GinkgoHelper()
	list := &corev1.EventList{}
	Expect(p.admin.List(ctx, list, client.InNamespace(p.namespace))).To(Succeed())
	return list.Items
}

// tryKubectl runs kubectl as the administrator, and returns its error.
func (c *cluster) tryKubectl(ctx context.Context, args ...string) (stdout, stderr string, err error) {
	GinkgoHelper()
	var out, complaints bytes.Buffer
	command := exec.CommandContext(ctx, requireProgram("kubectl"), append([]string{"--kubeconfig", c.kubeconfig}, args...)...)
	command.Stdout, command.Stderr = &out, &complaints
	err = command.Run()
	GinkgoWriter.Println("kubectl", strings.Join(args, " "), "\n", out.String(), complaints.String())
	return out.String(), complaints.String(), err
}

// newStatefulSet creates the StatefulSet db and waits until its pods are available.
func (p scenario) newStatefulSet(ctx context.Context, replicas int32) *appsv1.StatefulSet {
	GinkgoHelper()
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: template(),
		},
	}
	Expect(p.admin.Create(ctx, set)).To(Succeed())
	p.awaitAvailable(ctx, int(replicas))
	return set
}

// newDaemonSet creates the DaemonSet agent and waits until its pods are available, one on each node.
func (p scenario) newDaemonSet(ctx context.Context) *appsv1.DaemonSet {
	GinkgoHelper()
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "agent"},
		Spec:       appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: template()},
	}
	Expect(p.admin.Create(ctx, set)).To(Succeed())
	nodes := &corev1.NodeList{}
	Expect(p.admin.List(ctx, nodes)).To(Succeed())
	p.awaitAvailable(ctx, len(nodes.Items))
	return set
}

// newJob creates a Job with one pod.
func (p scenario) newJob(ctx context.Context, annotations map[string]string) *batchv1.Job {
	GinkgoHelper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "job"}, Spec: batchv1.JobSpec{Template: template()}}
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	job.Spec.Template.Annotations = annotations
	Expect(p.admin.Create(ctx, job)).To(Succeed())
	return job
}
