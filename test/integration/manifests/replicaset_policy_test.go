package manifests_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("The policy for ReplicaSets of the manager", Ordered, func() {
	var (
		namespace string
		manager   client.Client
	)
	newSet := func(ctx context.Context, controlled bool) *appsv1.ReplicaSet {
		GinkgoHelper()
		labels := map[string]string{"app": "web"}
		if controlled {
			labels["kusionstack.io/control"] = "true"
		}
		set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "web-", Annotations: map[string]string{"note": "x"}}}
		set.Spec.Replicas = new(int32(3))
		set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
		set.Spec.Template = corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example.com/web:v1"}}},
		}
		Expect(server.admin.Create(ctx, set)).To(Succeed())
		return set
	}
	patch := func(ctx context.Context, set *appsv1.ReplicaSet, text string, options ...client.PatchOption) error {
		return manager.Patch(ctx, set, client.RawPatch(types.MergePatchType, []byte(text)), options...)
	}

	BeforeAll(func(ctx context.Context) {
		namespace, manager = newNamespace(ctx), asManager()
		probe := newSet(ctx, true)
		Eventually(func() error {
			return patch(ctx, probe, `{"metadata":{"labels":{"app":"other"}}}`, client.DryRunAll)
		}).Should(Satisfy(apierrors.IsForbidden))
	})

	DescribeTable("limits a patch", func(ctx context.Context, controlled bool, text, denied string) {
		err := patch(ctx, newSet(ctx, controlled), text)
		if denied == "" {
			Expect(err).NotTo(HaveOccurred())
			return
		}
		Expect(err).To(Satisfy(apierrors.IsForbidden))
		Expect(err).To(MatchError(ContainSubstring(denied)))
	},
		Entry("its own annotations", true,
			`{"metadata":{"annotations":{"podopslifecycle.kusionstack.io/woken":"t","podopslifecycle.kusionstack.io/desired-replicas":null}}}`, ""),
		Entry("fewer replicas", true, `{"spec":{"replicas":2}}`, "the spec of a ReplicaSet"),
		Entry("more replicas", true, `{"spec":{"replicas":4}}`, "the spec of a ReplicaSet"),
		Entry("another annotation", true, `{"metadata":{"annotations":{"note":null}}}`, "its own annotations of a ReplicaSet only"),
		Entry("its pods", true, `{"spec":{"minReadySeconds":5}}`, "the spec of a ReplicaSet"),
		Entry("its owners", true, `{"metadata":{"finalizers":["example.com/x"]}}`, "labels, finalizers or owners"),
	)
})
