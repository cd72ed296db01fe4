package manifests_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("The manager's identity", func() {
	type access = authorizationv1.ResourceAttributes
	allowed := func(ctx context.Context, what access) bool {
		GinkgoHelper()
		c, err := client.New(configAsManager(), client.Options{Scheme: server.scheme})
		Expect(err).NotTo(HaveOccurred())
		review := &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what},
		}
		Expect(c.Create(ctx, review)).To(Succeed())
		return review.Status.Allowed
	}

	DescribeTable("may", func(ctx context.Context, what access) { Expect(allowed(ctx, what)).To(BeTrue()) },
		Entry("watch pods", access{Resource: "pods", Verb: "watch"}),
		Entry("patch pods", access{Resource: "pods", Verb: "patch", Namespace: "default"}),
		Entry("patch pods/status", access{Resource: "pods", Subresource: "status", Verb: "patch", Namespace: "default"}),
		Entry("delete pods", access{Resource: "pods", Verb: "delete", Namespace: "default"}),
		Entry("update the status of rules", access{Group: "apps.kusionstack.io", Resource: "podtransitionrules", Subresource: "status", Verb: "update", Namespace: "default"}),
		Entry("watch policies", access{Group: "apps.kusionstack.io", Resource: "podtransitionpolicies", Verb: "watch"}),
		Entry("patch the status of policies", access{Group: "apps.kusionstack.io", Resource: "podtransitionpolicies", Subresource: "status", Verb: "patch"}),
		Entry("watch operations", access{Group: "apps.kusionstack.io", Resource: "podoperations", Verb: "watch"}),
		Entry("patch the status of operations", access{Group: "apps.kusionstack.io", Resource: "podoperations", Subresource: "status", Verb: "patch", Namespace: "default"}),
		Entry("resize pods", access{Resource: "pods", Subresource: "resize", Verb: "patch", Namespace: "default"}),
		Entry("watch traffic adapters", access{Group: "apps.kusionstack.io", Resource: "trafficadapters", Verb: "watch"}),
		Entry("patch the status of traffic adapters", access{Group: "apps.kusionstack.io", Resource: "trafficadapters", Subresource: "status", Verb: "patch"}),
		Entry("patch disruption budgets", access{Group: "policy", Resource: "poddisruptionbudgets", Verb: "patch", Namespace: "default"}),
		Entry("watch namespaces", access{Resource: "namespaces", Verb: "watch"}),
		Entry("write events", access{Resource: "events", Verb: "create", Namespace: "default"}),
		Entry("watch its secret", access{Resource: "secrets", Name: "podops-webhook-certs", Verb: "watch", Namespace: "podops-system"}),
		Entry("review tokens of its metrics", access{Group: "authentication.k8s.io", Resource: "tokenreviews", Verb: "create"}),
		Entry("review access to its metrics", access{Group: "authorization.k8s.io", Resource: "subjectaccessreviews", Verb: "create"}),
		Entry("renew its lease", access{Group: "coordination.k8s.io", Resource: "leases", Name: "podops-controller-manager", Verb: "update", Namespace: "podops-system"}),
	)

	DescribeTable("may not", func(ctx context.Context, what access) { Expect(allowed(ctx, what)).To(BeFalse()) },
		// Granted before, and used by no code.
		Entry("patch the status of rules", access{Group: "apps.kusionstack.io", Resource: "podtransitionrules", Subresource: "status", Verb: "patch", Namespace: "default"}),
		Entry("update its webhook configurations", access{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations", Name: "podops-mutating", Verb: "update"}),
		Entry("patch its secret", access{Resource: "secrets", Name: "podops-webhook-certs", Verb: "patch", Namespace: "podops-system"}),
		Entry("patch its lease", access{Group: "coordination.k8s.io", Resource: "leases", Name: "podops-controller-manager", Verb: "patch", Namespace: "podops-system"}),
		Entry("bind pods", access{Resource: "pods", Subresource: "binding", Verb: "create", Namespace: "default"}),
		Entry("update whole pods", access{Resource: "pods", Verb: "update", Namespace: "default"}),
		Entry("create pods", access{Resource: "pods", Verb: "create", Namespace: "default"}),
		Entry("change rules", access{Group: "apps.kusionstack.io", Resource: "podtransitionrules", Verb: "update", Namespace: "default"}),
		Entry("change policies", access{Group: "apps.kusionstack.io", Resource: "podtransitionpolicies", Verb: "patch"}),
		Entry("update the whole status of policies", access{Group: "apps.kusionstack.io", Resource: "podtransitionpolicies", Subresource: "status", Verb: "update"}),
		Entry("create operations", access{Group: "apps.kusionstack.io", Resource: "podoperations", Verb: "create", Namespace: "default"}),
		Entry("update whole operations", access{Group: "apps.kusionstack.io", Resource: "podoperations", Verb: "update", Namespace: "default"}),
		Entry("change traffic adapters", access{Group: "apps.kusionstack.io", Resource: "trafficadapters", Verb: "patch"}),
		Entry("read leases of other programs", access{Group: "coordination.k8s.io", Resource: "leases", Name: "other", Verb: "get", Namespace: "default"}),
		Entry("list secrets", access{Resource: "secrets", Verb: "list", Namespace: "podops-system"}),
		Entry("read another secret", access{Resource: "secrets", Name: "other", Verb: "get", Namespace: "podops-system"}),
		Entry("read a secret of that name elsewhere", access{Resource: "secrets", Name: "podops-webhook-certs", Verb: "get", Namespace: "default"}),
		Entry("delete its secret", access{Resource: "secrets", Name: "podops-webhook-certs", Verb: "delete", Namespace: "podops-system"}),
		Entry("take another lease", access{Group: "coordination.k8s.io", Resource: "leases", Name: "other", Verb: "update", Namespace: "podops-system"}),
		Entry("list webhooks", access{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations", Verb: "list"}),
		Entry("change another webhook", access{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations", Name: "other", Verb: "patch"}),
		Entry("create webhooks", access{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations", Verb: "create"}),
		Entry("change admission policies", access{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies", Name: "podops-pod-status", Verb: "patch"}),
		Entry("change the status of disruption budgets", access{Group: "policy", Resource: "poddisruptionbudgets", Subresource: "status", Verb: "patch", Namespace: "default"}),
		Entry("delete disruption budgets", access{Group: "policy", Resource: "poddisruptionbudgets", Verb: "delete", Namespace: "default"}),
		Entry("change deployments", access{Group: "apps", Resource: "deployments", Verb: "patch", Namespace: "default"}),
	)
})
