package e2e_test

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/approval"
	"github.com/podops-dev/podops/test/expect"
)

// approvalRule is a rule that requires so many approvals.
func approvalRule(minApprovals int32) appsv1alpha1.TransitionRule {
	return appsv1alpha1.TransitionRule{Name: "approval", Approval: &appsv1alpha1.ApprovalRule{MinApprovals: minApprovals}}
}

// approvers lets users read the namespace, and decide about its workloads.
func (p scenario) approvers(ctx context.Context, users ...string) {
	GinkgoHelper()
	for _, role := range []string{"podops-approver", "view"} {
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		}
		for _, user := range users {
			binding.Subjects = append(binding.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
		}
		Expect(p.admin.Create(ctx, binding)).To(Succeed())
	}
}

// verbAs runs a verb of the plugin as a user, and returns its output.
func (p scenario) verbAs(ctx context.Context, user string, arguments ...string) string {
	GinkgoHelper()
	out, complaints, code := p.podops(ctx, append(arguments, "--as", user, "-n", p.namespace)...)
	Expect(code).To(Equal(0), complaints)
	return out
}

// roll gives the Deployment web another template as a user, who need not have any right.
func (p scenario) roll(ctx context.Context, workload client.Object, user, version string) {
	GinkgoHelper()
	acting := p.as(user, []string{"system:masters"})
	patch := `{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"registry.example.com/web:` + version + `"}]}}}}`
	Expect(acting.Patch(ctx, workload, client.RawPatch(types.StrategicMergePatchType, []byte(patch)))).To(Succeed())
}

// running returns a condition: all pods run a version.
func (p scenario) running(version string, count int) func(context.Context) []string {
	return func(ctx context.Context) []string {
		var others []string
		pods := p.list(ctx)
		for _, pod := range pods {
			if !strings.HasSuffix(pod.Spec.Containers[0].Image, ":"+version) {
				others = append(others, pod.Name)
			}
		}
		if len(pods) != count {
			others = append(others, "surplus")
		}
		return others
	}
}

func haveBlocked(message string) gomegatypes.GomegaMatcher {
	return HaveField("Status.Blocked", ContainElement(HaveField("Message", ContainSubstring(message))))
}

var _ = Describe("A rule of kind approval", func() {
	var p scenario
	var web *appsv1.Deployment

	BeforeEach(func(ctx context.Context) {
		p = newScenario(ctx)
		p.approvers(ctx, "alice", "bob", "carol", "dan")
		p.rule(ctx, approvalRule(2))
		web = p.deployment(ctx, 3, nil)
	})

	It("lets the revision go on that two users have approved, and no other", func(ctx context.Context) {
		p.roll(ctx, web, "carol", "v2")
		Eventually(ctx, p.seeingRule("web")).Should(haveBlocked("of Deployment web has 0 of 2 approvals"))
		listed := p.verbAs(ctx, "alice", "approvals")
		Expect(listed).To(And(
			ContainSubstring("deployment/web, revision "), ContainSubstring("written by carol"), ContainSubstring("waits: "),
			ContainSubstring("container web: registry.example.com/web:v1 -> registry.example.com/web:v2 (")))

		By("approving as the author, and as one other user")
		p.verbAs(ctx, "carol", "approve", "deploy/web", "--reason", "it is mine")
		p.verbAs(ctx, "alice", "approve", "deploy/web", "--reason", "load test passed")
		Eventually(ctx, p.seeingRule("web")).Should(haveBlocked("has 1 of 2 approvals (alice); the approval of its author carol does not count"))
		Consistently(ctx, p.running("v2", 3)).ShouldNot(BeEmpty())
		p.verbAs(ctx, "alice", "approve", "deploy/web")
		Consistently(ctx, p.running("v2", 3)).ShouldNot(BeEmpty(), "a user counts once")

		By("approving as a second user")
		Expect(p.verbAs(ctx, "bob", "approve", "deploy/web")).To(ContainSubstring(": Approve by bob\n"))
		Eventually(ctx, p.running("v2", 3)).Should(BeEmpty())
		Expect(p.verbAs(ctx, "bob", "approvals")).To(And(ContainSubstring("rule web/approval: approved"), ContainSubstring("Approve by alice, ")))
		counted := And(HaveField("Workload", "Deployment web"), HaveField("Reasons", "carol: it is mine"), HaveField("ApprovedBy", Equal([]string{"alice", "bob", "carol"})))
		Eventually(ctx, p.seeingRule("web")).Should(HaveField("Status.Rules", ContainElement(HaveField("LastApprovals", ConsistOf(counted)))))
		Eventually(ctx, p.events).Should(ContainElement(And(
			HaveField("Reason", "RevisionApproved"), HaveField("InvolvedObject.Name", "web"), HaveField("Message", ContainSubstring("approved by alice, bob, carol (")), HaveField("Message", ContainSubstring("carol: it is mine")))))

		By("rolling another revision out, and going back to the approved revision")
		p.roll(ctx, web, "carol", "v3")
		Eventually(ctx, p.seeingRule("web")).Should(haveBlocked("has 0 of 2 approvals"))
		Consistently(ctx, func(ctx context.Context) int { return len(p.running("v2", 4)(ctx)) }).Should(Equal(1), "only the surge pod runs v3")
		p.kubectl(ctx, "-n", p.namespace, "rollout", "undo", "deploy/web")
		Eventually(ctx, p.running("v2", 3)).Should(BeEmpty())
		p.awaitAvailable(ctx, 3)
	})

	It("withholds what a user denies, until that user approves it", func(ctx context.Context) {
		p.roll(ctx, web, "carol", "v2")
		Expect(p.verbAs(ctx, "dan", "deny", "deploy/web", "--reason", "not on Friday")).To(ContainSubstring(": Deny by dan\n"))
		p.verbAs(ctx, "alice", "approve", "deploy/web")
		p.verbAs(ctx, "bob", "approve", "deploy/web")
		Eventually(ctx, p.seeingRule("web")).Should(haveBlocked("of Deployment web is denied by dan: not on Friday"))
		Consistently(ctx, p.running("v2", 3)).ShouldNot(BeEmpty())
		Eventually(ctx, func(ctx context.Context) []string { // times of objects have seconds, and in the same second Deny counts
			p.verbAs(ctx, "dan", "approve", "deploy/web")
			return p.running("v2", 3)(ctx)
		}).Should(BeEmpty())
	})

	It("lets decisions expire", func(ctx context.Context) {
		p.roll(ctx, web, "carol", "v2")
		p.verbAs(ctx, "dan", "deny", "deploy/web", "--for", "4s")
		p.verbAs(ctx, "alice", "approve", "deploy/web", "--for", "5s")
		Eventually(ctx, p.seeingRule("web")).Should(haveBlocked("is denied by dan"))
		Eventually(ctx, p.seeingRule("web")).Should(haveBlocked("has 0 of 2 approvals"))
		p.verbAs(ctx, "bob", "approve", "deploy/web")
		Eventually(ctx, p.seeingRule("web")).Should(haveBlocked("has 1 of 2 approvals (bob)"))
		Expect(p.verbAs(ctx, "bob", "approvals", "deploy/web")).To(ContainSubstring("Approve by alice, "))
		p.verbAs(ctx, "alice", "approve", "deploy/web", "--for", "1h")
		Eventually(ctx, p.running("v2", 3)).Should(BeEmpty())
	})

	It("requires nothing for pods that run the revision", func(ctx context.Context) {
		pod := p.list(ctx)[0]
		Expect(p.evict(ctx, pod)).To(Succeed())
		p.awaitAvailable(ctx, 3)
		p.scale(ctx, web, 2)
		Eventually(ctx, p.list).Should(HaveLen(2))
	})

	It("refuses a revision that is not the reviewed one, and users without the right", func(ctx context.Context) {
		p.roll(ctx, web, "carol", "v2")
		_, complaints, code := p.podops(ctx, "approve", "deploy/web", "--revision", "0000", "--as", "alice", "-n", p.namespace)
		Expect(code).To(Equal(1))
		Expect(complaints).To(ContainSubstring("deploy/web has revision "))
		_, complaints, code = p.podops(ctx, "approve", "deploy/web", "--as", "mallory", "-n", p.namespace)
		Expect(code).To(Equal(1))
		Expect(complaints).To(ContainSubstring("forbidden"))
	})

	It("requires one approval more unless the author is known, and no user can forge the author", func(ctx context.Context) {
		Expect(p.admin.Get(ctx, client.ObjectKeyFromObject(web), web)).To(Succeed())
		author := web.Annotations[appsv1alpha1.TemplateAuthorAnnotationKey]
		Expect(author).To(HavePrefix(approval.Revision(&web.Spec.Template) + " "))

		By("writing another author with and without a change of the template")
		mallory := p.as("mallory", []string{"system:masters"})
		forged := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+appsv1alpha1.TemplateAuthorAnnotationKey+`":"x eve"}}}`))
		Expect(mallory.Patch(ctx, web, forged)).To(Succeed())
		Expect(web.Annotations).To(HaveKeyWithValue(appsv1alpha1.TemplateAuthorAnnotationKey, author))
		removed := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+appsv1alpha1.TemplateAuthorAnnotationKey+`":null}}}`))
		Expect(mallory.Patch(ctx, web, removed)).To(Succeed())
		Expect(web.Annotations).To(HaveKeyWithValue(appsv1alpha1.TemplateAuthorAnnotationKey, author))
		both := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+appsv1alpha1.TemplateAuthorAnnotationKey+
			`":"x eve"}},"spec":{"template":{"metadata":{"annotations":{"rolled":"1"}}}}}`))
		Expect(mallory.Patch(ctx, web, both)).To(Succeed())
		Expect(web.Annotations).To(HaveKeyWithValue(appsv1alpha1.TemplateAuthorAnnotationKey, author+"\n"+approval.Revision(&web.Spec.Template)+" mallory"))
	})

	It("withholds a Deployment of the strategy Recreate likewise", func(ctx context.Context) {
		p.patch(ctx, web, `{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}`)
		p.roll(ctx, web, "carol", "v2")
		Eventually(ctx, p.seeingRule("web")).Should(haveBlocked("of Deployment web has 0 of 2 approvals"))
		Consistently(ctx, p.running("v2", 3)).Should(HaveLen(3))
		p.verbAs(ctx, "alice", "approve", "deploy/web")
		p.verbAs(ctx, "bob", "approve", "deploy/web")
		Eventually(ctx, p.running("v2", 3)).Should(BeEmpty())
		p.awaitAvailable(ctx, 3)
	})

	It("withholds a StatefulSet likewise", func(ctx context.Context) {
		Expect(p.admin.Delete(ctx, web)).To(Succeed())
		Eventually(ctx, p.list).Should(BeEmpty())
		set := p.newStatefulSet(ctx, 2)
		p.roll(ctx, set, "carol", "v2")
		Eventually(ctx, p.seeingRule("web")).Should(haveBlocked("of StatefulSet db has 0 of 2 approvals"))
		p.verbAs(ctx, "alice", "approve", "sts/db")
		p.verbAs(ctx, "bob", "approve", "sts/db")
		Eventually(ctx, p.running("v2", 2)).Should(BeEmpty())
		Eventually(ctx, p.list).Should(HaveEach(expect.BeAvailable()))
	})
})

var _ = Describe("A PodOperationApproval", func() {
	It("has the user who creates it as approver, by any verb", func(ctx context.Context) {
		p := newScenario(ctx)
		p.approvers(ctx, "alice")
		alice := p.as("alice", nil)

		By("leaving the approver out")
		mine := decision(p, "")
		Expect(alice.Create(ctx, mine)).To(Succeed())
		Expect(mine.Spec.Approver).To(Equal("alice"))

		By("creating one in the name of bob")
		refused := HaveField("ErrStatus.Message", ContainSubstring("spec.approver must be the user who creates the approval, "))
		Expect(alice.Create(ctx, decision(p, "bob"))).To(And(Satisfy(apierrors.IsForbidden), refused))
		admin := p.once().admin // whose name is not bob either, and who may do everything else
		Expect(admin.Create(ctx, decision(p, "bob"))).To(And(Satisfy(apierrors.IsForbidden), refused))
		applied := decision(p, "bob")
		applied.GenerateName, applied.Name = "", "applied"
		applied.SetGroupVersionKind(appsv1alpha1.GroupVersion().WithKind("PodOperationApproval"))
		Expect(admin.Patch(ctx, applied, client.Apply, client.FieldOwner("e2e"))).To(refused) //nolint:staticcheck // the typed way cannot send this object

		By("changing one")
		for _, change := range []string{
			`{"spec":{"approver":"bob"}}`, `{"spec":{"decision":"Deny"}}`, `{"spec":{"revision":"` + strings.Repeat("b", 64) + `"}}`,
			`{"spec":{"workload":{"name":"other"}}}`, `{"spec":{"expiresAt":"2030-01-01T00:00:00Z"}}`, `{"spec":{"reason":"other"}}`,
		} {
			Expect(admin.Patch(ctx, mine.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(change)))).To(
				HaveField("ErrStatus.Message", ContainSubstring("a decision cannot be changed")), change)
		}
		whole := mine.DeepCopy()
		whole.Spec.Approver = "bob"
		Expect(admin.Update(ctx, whole)).To(HaveField("ErrStatus.Message", ContainSubstring("a decision cannot be changed")))
		Expect(admin.Patch(ctx, mine.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"seen":"1"}}}`)))).To(Succeed())

		By("forging its time")
		early := decision(p, "")
		early.CreationTimestamp = metav1.Unix(1, 0)
		Expect(alice.Create(ctx, early)).To(Succeed())
		Expect(early.CreationTimestamp.Unix()).To(BeNumerically(">", 1))

		By("deleting what another user has decided")
		Expect(alice.Delete(ctx, mine)).To(Satisfy(apierrors.IsForbidden))
	})

	It("is deleted with the history of the workload that Kubernetes keeps", func(ctx context.Context) {
		p := newScenario(ctx)
		p.approvers(ctx, "alice")
		web := p.deployment(ctx, 1, nil)
		p.verbAs(ctx, "alice", "approve", "deploy/web")
		decisions := func(ctx context.Context) []appsv1alpha1.PodOperationApproval {
			list := &appsv1alpha1.PodOperationApprovalList{}
			Expect(p.admin.List(ctx, list, client.InNamespace(p.namespace))).To(Succeed())
			return list.Items
		}
		Expect(decisions(ctx)).To(ConsistOf(HaveField("OwnerReferences", ConsistOf(HaveField("Kind", "ReplicaSet")))))
		p.patch(ctx, web, `{"spec":{"revisionHistoryLimit":0,"template":{"metadata":{"annotations":{"rolled":"1"}}}}}`)
		Eventually(ctx, decisions).Should(BeEmpty())
		p.verbAs(ctx, "alice", "approve", "deploy/web")
		Expect(decisions(ctx)).To(HaveLen(1))
		Expect(p.admin.Delete(ctx, web, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
		Eventually(ctx, decisions).Should(BeEmpty())
	})
})

var _ = Describe("An approval when the leader ends", func() {
	It("counts for the next leader, which lets the rollout go on", func(ctx context.Context) {
		team := newTeam(ctx, shortLease...)
		p := newScenario(ctx)
		p.approvers(ctx, "alice", "bob")
		p.rule(ctx, approvalRule(1), maxUnavailable("1"))
		web := p.deployment(ctx, 4, nil)
		p.roll(ctx, web, "carol", "v2")
		p.verbAs(ctx, "alice", "approve", "deploy/web")
		Eventually(ctx, func(ctx context.Context) int { return len(p.running("v2", 4)(ctx)) }).Should(BeNumerically("<", 4))
		team.killLeader(ctx)
		Eventually(ctx, p.running("v2", 4)).WithTimeout(2 * patience).Should(BeEmpty())
	})
})

var _ = Describe("An approval while no manager runs", func() {
	It("holds back no rollback, and knows its author by the revision", func(ctx context.Context) {
		p := newScenario(ctx)
		p.approvers(ctx, "alice", "bob")
		web := p.deployment(ctx, 2, nil)
		p.roll(ctx, web, "carol", "v2")
		Eventually(ctx, p.running("v2", 2)).Should(BeEmpty())
		p.roll(ctx, web, "dan", "v3")
		Eventually(ctx, p.running("v3", 2)).Should(BeEmpty())
		p.rule(ctx, approvalRule(1))
		managers.stopAll()
		restarted := false
		DeferCleanup(func(ctx context.Context) {
			if !restarted {
				managers.start(ctx)
			}
		})

		By("rolling back, which copies the annotations of the ReplicaSet, and then to a new template")
		p.kubectl(ctx, "-n", p.namespace, "rollout", "undo", "deploy/web")
		Expect(p.admin.Get(ctx, client.ObjectKeyFromObject(web), web)).To(Succeed())
		Expect(approval.Author(web.Annotations, approval.Revision(&web.Spec.Template))).To(Equal("carol"))
		p.roll(ctx, web, "carol", "v4")
		Expect(approval.Author(web.Annotations, approval.Revision(&web.Spec.Template))).To(BeEmpty())

		By("starting a manager: one approval more is required")
		restarted = true
		managers.start(ctx)
		Eventually(ctx, p.seeingRule("web")).Should(haveBlocked("has 0 of 2 approvals; its author is not known"))
		p.verbAs(ctx, "alice", "approve", "deploy/web")
		p.verbAs(ctx, "bob", "approve", "deploy/web")
		Eventually(ctx, p.running("v4", 2)).Should(BeEmpty())
	})
})

// decision returns an approval by a user of a revision that no Deployment has.
func decision(p scenario, approver string) *appsv1alpha1.PodOperationApproval {
	return &appsv1alpha1.PodOperationApproval{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, GenerateName: "web-"},
		Spec: appsv1alpha1.PodOperationApprovalSpec{
			Workload: appsv1alpha1.ApprovalWorkload{Kind: "Deployment", Name: "web"}, Revision: strings.Repeat("a", 64),
			Decision: appsv1alpha1.ApprovalApprove, Approver: approver,
		},
	}
}
