package e2e_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/test/audit"
	"github.com/podops-dev/podops/test/expect"
)

const (
	// rejectedUser is a user whose requests are rejected by others than PodOps.
	rejectedUser = "jane"

	// rejection is the message of each rejection.
	rejection = "not by jane"
)

// denyingWebhook has another validating webhook beside those of PodOps deny deletes and evictions by rejectedUser in the
// scenario. The API server calls all webhooks at once.
func (p scenario) denyingWebhook(ctx context.Context) {
	GinkgoHelper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, "no review", http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: review.Request.UserInfo.Username != rejectedUser}
		if !review.Response.Allowed {
			review.Response.Result = &metav1.Status{Code: http.StatusForbidden, Message: rejection}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review) // the API server reports what it does not get
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // the API server ends connections
	server.StartTLS()
	DeferCleanup(server.Close)
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}
	configuration.Webhooks = []admissionregistrationv1.ValidatingWebhook{{
		Name: "others.e2e.podops.dev",
		ClientConfig: admissionregistrationv1.WebhookClientConfig{
			URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: p.namespace}},
		Rules: []admissionregistrationv1.RuleWithOperations{
			{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			},
			{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/eviction"}},
			},
		},
		SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
		FailurePolicy:           new(admissionregistrationv1.Fail),
		AdmissionReviewVersions: []string{"v1"},
	}}
	Expect(p.admin.Create(ctx, configuration)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(p.admin.Delete(ctx, configuration)).To(Succeed()) })
	pod := p.list(ctx)[0]
	Eventually(ctx, func(ctx context.Context) error {
		return p.as(rejectedUser, nil).Delete(ctx, pod, client.DryRunAll, forced)
	}).Should(expect.BeRefused(403, rejection))
}

var _ = Describe("A request that others reject", func() {
	var p scenario
	var set *appsv1.ReplicaSet
	var before []*corev1.Pod

	BeforeEach(func(ctx context.Context) { p = newScenario(ctx) })

	// expectNothing expects that all pods stay in service.
	expectNothing := func(ctx context.Context) {
		GinkgoHelper()
		Consistently(ctx, p.list).WithTimeout(2 * holdWindow).Should(And(
			WithTransform(uids, ConsistOf(uids(before))), HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle()))))
		Expect(p.admin.Get(ctx, client.ObjectKeyFromObject(set), set)).To(Succeed())
		Expect(*set.Spec.Replicas).To(BeEquivalentTo(3))
		Expect(p.annotatedSets(ctx)).To(BeEmpty())
	}

	It("lowers no ReplicaSet when a policy denies its scale", Label(mainStories), func(ctx context.Context) {
		set = p.replicaSet(ctx, 3)
		before = p.list(ctx)
		p.allow(ctx, rejectedUser,
			rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"replicasets"}, Verbs: []string{"get"}},
			rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"replicasets/scale"}, Verbs: []string{"get", "update", "patch"}})
		p.reviewing(ctx, admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"replicasets/scale"}},
		}, admissionregistrationv1.Validation{Expression: "request.userInfo.username != '" + rejectedUser + "'", Message: rejection})
		// The API server compiles the policy a moment later.
		Eventually(ctx, func(ctx context.Context) error {
			none := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))
			return p.as(rejectedUser, nil).SubResource("scale").Patch(ctx, set.DeepCopy(), none, client.DryRunAll)
		}).Should(expect.BeRefused(422, rejection))

		_, complaints, err := p.tryKubectl(ctx, "--as", rejectedUser, "--namespace", p.namespace, "scale", "replicaset/web", "--replicas=0")
		Expect(err).To(HaveOccurred())
		Expect(complaints).To(ContainSubstring(rejection))
		expectNothing(ctx)
	})

	It("lowers no ReplicaSet when its scale was made on an earlier version", func(ctx context.Context) {
		set = p.replicaSet(ctx, 3)
		before = p.list(ctx)
		scale := &autoscalingv1.Scale{}
		Expect(p.admin.SubResource("scale").Get(ctx, set, scale)).To(Succeed())
		p.patch(ctx, set, `{"metadata":{"annotations":{"e2e.podops.dev/changed":"true"}}}`)
		scale.Spec.Replicas = 0
		Expect(p.admin.SubResource("scale").Update(ctx, set, client.WithSubResourceBody(scale))).To(expect.BeRefused(409))
		expectNothing(ctx)
	})

	DescribeTable("is not carried out with the rights of PodOps when another webhook denies",
		func(ctx context.Context, request func(context.Context, client.Client, *corev1.Pod) error) {
			p.rule(ctx, approved())
			set = p.replicaSet(ctx, 3)
			before = p.list(ctx)
			p.allow(ctx, rejectedUser,
				rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "delete"}},
				rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/eviction"}, Verbs: []string{"create"}})
			p.denyingWebhook(ctx)
			jane, removals := p.as(rejectedUser, nil), openLedger(p)
			removed := func() audit.Events {
				return removals.byAllUsers(audit.On("pods/*"), audit.InNamespace(p.namespace), accepted,
					func(e audit.Event) bool { return e.Verb == "delete" || audit.On("pods/eviction")(e) })
			}

			By("requesting it while a rule withholds the pod, which is approved then")
			Expect(request(ctx, jane, before[0])).To(Or(expect.BeRefused(403, rejection), expect.BeRefused(429, "PodOps holds")))
			p.approve(ctx)
			Eventually(ctx, p.list).WithTimeout(2 * patience).Should(HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle())))
			expectNothing(ctx)

			By("requesting it while the rule passes")
			Expect(request(ctx, jane, before[0])).To(Or(expect.BeRefused(403, rejection), expect.BeRefused(429, "PodOps holds")))
			Eventually(ctx, p.list).WithTimeout(2 * patience).Should(HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle())))
			expectNothing(ctx)
			Expect(removed()).To(BeEmpty())
			Expect(p.eventReasons(ctx)).NotTo(ContainElement("DeleteFinished"))
		},
		Entry("a delete", func(ctx context.Context, c client.Client, pod *corev1.Pod) error { return c.Delete(ctx, pod) }),
		Entry("an eviction", func(ctx context.Context, c client.Client, pod *corev1.Pod) error {
			return c.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}})
		}),
	)
})
