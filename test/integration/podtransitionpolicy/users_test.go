package podtransitionpolicy_test

import (
	"context"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/expect"
)

const takesMinutes = `{` + allowAll + `, parameters: {openAPIV3Schema: {type: object, required: [minutes], properties: {minutes: {type: integer, minimum: 1}}}}}`

var _ = Describe("A rule that refers to a policy", func() {
	It("may be created before it", func(ctx context.Context) {
		created(ctx, rule("early", `{policyRef: {name: late}, parameters: {minutes: 5}}`))
		created(ctx, policy("late", takesMinutes))
	})

	It("may be applied right after it", func(ctx context.Context) {
		for _, name := range []string{"quick-1", "quick-2", "quick-3", "quick-4", "quick-5"} {
			created(ctx, policy(name, takesMinutes), rule(name, `{policyRef: {name: `+name+`}, parameters: {minutes: 5}}`))
		}
	})

	DescribeTable("needs parameters that fit", func(ctx context.Context, given string, texts ...string) {
		Expect(client.IgnoreAlreadyExists(admin.Create(ctx, policy("fits", takesMinutes)))).To(Succeed())
		Expect(admin.Create(ctx, rule("fits", `{policyRef: {name: fits}`+given+`}`))).To(expect.BeRefused(422, texts...))
	},
		Entry("all of them", ``, "spec.rules[0].rego.parameters.minutes", "the policy requires it"),
		Entry("of the right type", `, parameters: {minutes: "5"}`, "spec.rules[0].rego.parameters.minutes", "must be of type integer"),
		Entry("within bounds", `, parameters: {minutes: 0}`, "spec.rules[0].rego.parameters.minutes", "greater than or equal to 1"),
		Entry("and no others", `, parameters: {minutes: 1, hours: 1}`, "spec.rules[0].rego.parameters.hours", "it has minutes"),
	)

	It("can lose its finalizers and change its labels when the policy does not exist", func(ctx context.Context) {
		object := rule("orphan", `{policyRef: {name: orphan}, parameters: {minutes: 1}}`)
		object.SetFinalizers([]string{"example.com/x"})
		created(ctx, policy("orphan", takesMinutes), object)
		withoutDeleteGuard(ctx, func() {
			Eventually(func() error { return admin.Delete(ctx, policy("orphan", takesMinutes)) }).Should(Succeed())
		})
		object.SetLabels(map[string]string{"a": "b"})
		Expect(admin.Update(ctx, object)).To(Succeed())
		Expect(admin.Delete(ctx, object)).To(Succeed())
		Expect(admin.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
	})
})

var _ = Describe("A policy in use", func() {
	It("is not deleted, not even in a dry run, nor with others", func(ctx context.Context) {
		used := policy("used", takesMinutes)
		used.SetLabels(map[string]string{"test": "used"})
		user := rule("user", `{policyRef: {name: used}, parameters: {minutes: 5}}`)
		created(ctx, used, user)
		inUse := expect.BeRefused(403, `PodTransitionPolicy "used" is in use by policies/user/r`, "remove these rules")
		Eventually(func() error { return admin.Delete(ctx, used, client.DryRunAll) }).Should(inUse)
		Expect(admin.Delete(ctx, used)).To(inUse)
		Expect(admin.DeleteAllOf(ctx, used, client.MatchingLabels{"test": "used"})).To(inUse)

		Expect(admin.Delete(ctx, user)).To(Succeed())
		Expect(admin.Delete(ctx, used)).To(Succeed(), "it must be deleted right after its last user")
	})

	It("keeps accepting the parameters of its users", func(ctx context.Context) {
		used, user := policy("kept", takesMinutes), rule("kept", `{policyRef: {name: kept}, parameters: {minutes: 5}}`)
		created(ctx, used, user)
		Eventually(func() int32 { return statusOf(ctx, "kept").UserCount }).Should(BeEquivalentTo(1))
		narrow := `{"spec":{"parameters":{"openAPIV3Schema":{"properties":{"minutes":{"maximum":4}}}}}}`
		Expect(admin.Patch(ctx, used, client.RawPatch(types.MergePatchType, []byte(narrow)))).
			To(expect.BeRefused(422, "spec.parameters", "policies/kept/r", "less than or equal to 4"))
		wide := `{"spec":{"parameters":{"openAPIV3Schema":{"properties":{"minutes":{"maximum":9}}}}}}`
		Expect(admin.Patch(ctx, used, client.RawPatch(types.MergePatchType, []byte(wide)))).To(Succeed())

		By("unless its owner accepts that its users become invalid")
		accepted := `{"metadata":{"annotations":{"` + appsv1alpha1.IgnoreUsersAnnotationKey + `":"true"}}}`
		Expect(admin.Patch(ctx, used, client.RawPatch(types.MergePatchType, []byte(accepted)))).To(Succeed())
		Expect(admin.Patch(ctx, used, client.RawPatch(types.MergePatchType, []byte(narrow)))).To(Succeed())
		Expect(admin.Delete(ctx, used)).To(Succeed())
	})

	It("names rules to users who may read them", func(ctx context.Context) {
		used, user := policy("private", takesMinutes), rule("private", `{policyRef: {name: private}, parameters: {minutes: 5}}`)
		created(ctx, used, user)
		Eventually(func() int32 { return statusOf(ctx, "private").UserCount }).Should(BeEquivalentTo(1))
		owner := asPolicyOwner(ctx)
		refused := expect.BeRefused(403, `"private" is in use by 1 rules in namespaces whose rules are not shown to you`)
		Expect(owner.Delete(ctx, used)).To(refused)
		grantRules(ctx, "policy-owner")
		Eventually(func() error { return owner.Delete(ctx, used) }).Should(expect.BeRefused(403, "policies/private/r"))
	})
})

var _ = Describe("The status of a policy", func() {
	It("reports that it is ready, and how many rules use it", func(ctx context.Context) {
		object := policy("status", `{`+allowAll+`}`)
		created(ctx, object)
		Eventually(func() bool {
			return meta.IsStatusConditionTrue(statusOf(ctx, "status").Conditions, appsv1alpha1.ConditionReady)
		}).Should(BeTrue())
		user := rule("status", `{policyRef: {name: status}}`)
		created(ctx, user)
		Eventually(func() appsv1alpha1.PodTransitionPolicyStatus { return statusOf(ctx, "status") }).
			Should(And(HaveField("UserCount", int32(1)), HaveField("UserNamespaceCount", int32(1))))
		Expect(admin.Delete(ctx, user)).To(Succeed())
		Eventually(func() int32 { return statusOf(ctx, "status").UserCount }).Should(BeZero())
	})
})

// withoutDeleteGuard calls do without the webhook for deletes of policies, as when PodOps
// is uninstalled.
func withoutDeleteGuard(ctx context.Context, do func()) {
	GinkgoHelper()
	guards := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	Expect(admin.Get(ctx, client.ObjectKey{Name: "podops-validating"}, guards)).To(Succeed())
	complete := guards.DeepCopy()
	guards.Webhooks = slices.DeleteFunc(guards.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool {
		return w.Name == "deletes.podtransitionpolicies.podops.kusionstack.io"
	})
	Expect(guards.Webhooks).To(HaveLen(len(complete.Webhooks) - 1))
	Expect(admin.Update(ctx, guards)).To(Succeed())
	do()
	guards.Webhooks = complete.Webhooks
	Expect(admin.Update(ctx, guards)).To(Succeed())
}

func statusOf(ctx context.Context, name string) appsv1alpha1.PodTransitionPolicyStatus {
	GinkgoHelper()
	stored := &appsv1alpha1.PodTransitionPolicy{}
	Expect(admin.Get(ctx, client.ObjectKey{Name: name}, stored)).To(Succeed())
	return stored.Status
}

// asPolicyOwner returns a client of a user who may write policies, and nothing else.
func asPolicyOwner(ctx context.Context) client.Client {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Name: "policy-owner"}
	Expect(admin.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"apps.kusionstack.io"}, Resources: []string{"podtransitionpolicies"}, Verbs: []string{"*"},
	}}})).To(Succeed())
	Expect(admin.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "policy-owner"}},
	})).To(Succeed())
	config := rest.CopyConfig(adminConfig)
	config.Impersonate = rest.ImpersonationConfig{UserName: "policy-owner", Groups: []string{"system:authenticated"}}
	owner, err := client.New(config, client.Options{Scheme: admin.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() error {
		return owner.Get(ctx, client.ObjectKey{Name: "private"}, &appsv1alpha1.PodTransitionPolicy{})
	}).Should(Succeed())
	return owner
}

// grantRules lets a user read the rules of the tests.
func grantRules(ctx context.Context, user string) {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: user}
	Expect(admin.Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"apps.kusionstack.io"}, Resources: []string{"podtransitionrules"}, Verbs: []string{"list"},
	}}})).To(Succeed())
	Expect(admin.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})).To(Succeed())
}
