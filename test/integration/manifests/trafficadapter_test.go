package manifests_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/expect"
)

var _ = Describe("A traffic adapter", func() {
	const lease = `, lease: {namespace: a, name: b}`
	adapter := func(spec string) *appsv1alpha1.TrafficAdapter {
		GinkgoHelper()
		a := &appsv1alpha1.TrafficAdapter{ObjectMeta: metav1.ObjectMeta{GenerateName: "adapter-"}}
		Expect(yaml.UnmarshalStrict([]byte(spec), &a.Spec)).To(Succeed())
		return a
	}

	DescribeTable("is accepted", func(ctx context.Context, spec string) {
		Expect(server.admin.Create(ctx, adapter(spec), client.DryRunAll)).To(Succeed())
	},
		Entry("for every Service", `{controller: lb, services: [{labelSelector: {}}]`+lease+`}`),
		Entry("without a lease", `{controller: lb, services: [{labelSelector: {matchExpressions: [{key: a, operator: In, values: [b]}, {key: c, operator: Exists}]}}]}`),
		Entry("with annotations", `{controller: lb, services: [{annotations: [{key: a, value: "true"}, {key: b}]}]}`),
		Entry("with classes", `{controller: lb, services: [{type: LoadBalancer, loadBalancerClasses: ["", example.com/lb]}]}`),
	)

	DescribeTable("is rejected", func(ctx context.Context, spec string, texts ...string) {
		Expect(server.admin.Create(ctx, adapter(spec), client.DryRunAll)).To(expect.BeRefused(422, texts...))
	},
		Entry("without a controller", `{services: [{labelSelector: {}}]}`, "spec.controller"),
		Entry("with a controller that is no name", `{controller: a b, services: [{labelSelector: {}}]}`, "spec.controller"),
		Entry("without Services", `{controller: lb, services: []}`, "spec.services", "at least 1"),
		Entry("with an empty entry", `{controller: lb, services: [{}]}`, "spec.services[0]", "labelSelector: {} matches every Service under PodOps"),
		Entry("with 9 entries", `{controller: lb, services: [`+strings.Repeat(`{labelSelector: {}},`, 9)+`]}`, "spec.services", "8"),
		Entry("with another type", `{controller: lb, services: [{type: ExternalName}]}`, "spec.services[0].type"),
		Entry("with classes of no load balancer", `{controller: lb, services: [{type: ClusterIP, loadBalancerClasses: [a]}]}`, "loadBalancerClasses needs type: LoadBalancer"),
		Entry("with In without values", `{controller: lb, services: [{labelSelector: {matchExpressions: [{key: a, operator: In}]}}]}`, "operator is In or NotIn with values"),
		Entry("with an unknown operator", `{controller: lb, services: [{labelSelector: {matchExpressions: [{key: a, operator: Near}]}}]}`, "operator is In or NotIn with values"),
		Entry("with a long value", `{controller: lb, services: [{annotations: [{key: a, value: `+strings.Repeat("v", 254)+`}]}]}`, "value", "253"),
		Entry("with a lease without a name", `{controller: lb, services: [{labelSelector: {}}], lease: {namespace: a, name: ""}}`, "spec.lease.name"),
	)

	It("keeps its controller", func(ctx context.Context) {
		a := adapter(`{controller: lb, services: [{labelSelector: {}}]}`)
		Expect(server.admin.Create(ctx, a)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(server.admin.Delete(ctx, a)).To(Succeed()) })
		a.Spec.Controller = "other"
		Expect(server.admin.Update(ctx, a)).To(expect.BeRefused(422, "controller cannot be changed"))
	})

	DescribeTable("has samples that are accepted", func(ctx context.Context, path ...string) {
		content, err := os.ReadFile(filepath.Join(append([]string{"..", "..", ".."}, path...)...))
		Expect(err).NotTo(HaveOccurred())
		a := &appsv1alpha1.TrafficAdapter{}
		first, _, _ := strings.Cut(string(content), "\n---\n")
		Expect(yaml.UnmarshalStrict([]byte(first), a)).To(Succeed())
		Expect(server.admin.Create(ctx, a, client.DryRunAll)).To(Succeed())
	},
		Entry("of the template", "pkg", "resourceconsist", "adaptertest", "template", "registration.yaml"),
		Entry("of SLB", "config", "samples", "adapters", "slb.yaml"),
	)

	It("is written by cluster administrators alone", func(ctx context.Context) {
		for _, role := range []string{"edit", "admin"} {
			binding := &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tenant-" + role},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "tenant-" + role}},
			}
			Expect(server.admin.Create(ctx, binding)).To(Succeed())
			DeferCleanup(func(ctx context.Context) { Expect(server.admin.Delete(ctx, binding)).To(Succeed()) })
			err := as("tenant-"+role, []string{"system:authenticated"}).Create(ctx, adapter(`{controller: lb, services: [{labelSelector: {}}]}`), client.DryRunAll)
			Expect(err).To(expect.BeRefused(403, "trafficadapters"))
		}
	})
})
