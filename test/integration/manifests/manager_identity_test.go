package manifests_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Other tests have the identity of the manifests, so nothing runs beside these.
var _ = Describe("The subjects of the manager's binding", Serial, Ordered, func() {
	const (
		otherUser     = "system:serviceaccount:other:manager"
		forbidden     = `{"metadata":{"labels":{"app":"other"}}}`
		readyPatch    = `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`
		forgedPatch   = `{"metadata":{"labels":{"` + lifecycleLabel + `":"1"}}}`
		harmlessPatch = `{"metadata":{"labels":{"example.com/x":"1"}}}`
	)
	var (
		namespace string
		original  []rbacv1.Subject
		user      = rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "jane"}
		group     = rbacv1.Subject{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "operators"}
		shipped   = rbacv1.Subject{Kind: "ServiceAccount", Namespace: "podops-system", Name: "podops-controller-manager"}
		other     = rbacv1.Subject{Kind: "ServiceAccount", Namespace: "other", Name: "manager"}
	)
	bind := func(ctx context.Context, subjects []rbacv1.Subject) {
		GinkgoHelper()
		binding := &rbacv1.ClusterRoleBinding{}
		Expect(server.admin.Get(ctx, client.ObjectKey{Name: appsv1alpha1.ManagerName}, binding)).To(Succeed())
		if original == nil {
			original = binding.Subjects
		}
		binding.Subjects = subjects
		Expect(server.admin.Update(ctx, binding)).To(Succeed())
	}
	// With every right, so that only the policies decide.
	with := func(name string) client.Client { return as(name, []string{"system:masters"}) }

	BeforeAll(func(ctx context.Context) { namespace = newNamespace(ctx) })
	AfterAll(func(ctx context.Context) {
		bind(ctx, original)
		probe := stored(ctx, newPod(namespace))
		Eventually(func() error { return patchPod(ctx, asManager(), probe, forbidden, client.DryRunAll) }).Should(Satisfy(apierrors.IsForbidden))
		Eventually(func() error { return patchPod(ctx, with(otherUser), probe, forbidden, client.DryRunAll) }).Should(Succeed())
	})

	DescribeTable("limit the ServiceAccounts among them and no other user", func(ctx context.Context, subjects []rbacv1.Subject, limited, free []string) {
		bind(ctx, subjects)
		probe := stored(ctx, newPod(namespace))
		// The API server learns of the binding by a watch.
		for _, name := range limited {
			Eventually(func() error { return patchPod(ctx, with(name), probe, forbidden, client.DryRunAll) }).Should(Satisfy(apierrors.IsForbidden), name)
		}
		for _, name := range free {
			Eventually(func() error { return patchPod(ctx, with(name), probe, forbidden, client.DryRunAll) }).Should(Succeed(), name)
			Expect(patchStatus(ctx, with(name), probe, forgedPatch, client.DryRunAll)).To(Satisfy(apierrors.IsForbidden), name)
		}
		for _, name := range limited {
			Expect(patchStatus(ctx, with(name), probe, forgedPatch, client.DryRunAll)).To(Succeed(), name)
		}

		By("writing as users apart from PodOps")
		Expect(patchStatus(ctx, server.admin, probe, readyPatch)).To(Succeed())
		pod := newPod(namespace)
		delete(pod.Labels, appsv1alpha1.ControlLabelKey)
		pod = stored(ctx, pod)
		Expect(patchPod(ctx, server.admin, pod, harmlessPatch)).To(Succeed())
		Expect(patchStatus(ctx, server.admin, pod, readyPatch)).To(Succeed())
		set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "web-"}}
		set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
		set.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: newPod(namespace).Spec}
		Expect(server.admin.Create(ctx, set)).To(Succeed())
		Expect(server.admin.Patch(ctx, set, client.RawPatch(types.MergePatchType, []byte(harmlessPatch)))).To(Succeed())
		operation := &appsv1alpha1.PodOperation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "restart-"}}
		operation.Spec.Target.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "none"}}
		operation.Spec.Action.Type = appsv1alpha1.ActionRestart
		Expect(server.admin.Create(ctx, operation)).To(Succeed())
		Expect(server.admin.Delete(ctx, operation)).To(Succeed())
		Expect(server.admin.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{})).To(Succeed())
		Expect(server.admin.Delete(ctx, probe)).To(Succeed())
	},
		Entry("none", nil, nil, []string{managerUser, otherUser}),
		Entry("a User first", []rbacv1.Subject{user, shipped}, []string{managerUser}, []string{otherUser, "jane"}),
		Entry("a Group first", []rbacv1.Subject{group, shipped}, []string{managerUser}, []string{otherUser}),
		Entry("two ServiceAccounts", []rbacv1.Subject{other, shipped}, []string{managerUser, otherUser}, nil),
		Entry("users and groups only", []rbacv1.Subject{user, group}, nil, []string{managerUser, "jane"}),
	)
})
