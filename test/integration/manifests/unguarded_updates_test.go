package manifests_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

var _ = Describe("The policy for updates in place", Ordered, func() {
	const (
		setImage = `{"spec":{"containers":[{"name":"web","image":"web:2"}]}}`
		resize   = `{"spec":{"containers":[{"name":"web","resources":{"requests":{"cpu":"20m"}}}]}}`
	)

	// patch sends a dry run of a patch to a pod or to a subresource of it.
	patch := func(ctx context.Context, pod *corev1.Pod, subresource, patch string) error {
		change := client.RawPatch(types.StrategicMergePatchType, []byte(patch))
		if subresource == "" {
			return server.admin.Patch(ctx, pod.DeepCopy(), change, client.DryRunAll)
		}
		return server.admin.SubResource(subresource).Patch(ctx, pod.DeepCopy(), change, client.DryRunAll)
	}
	// running is a pod on a node.
	running := func(namespace string) *corev1.Pod {
		pod := newPod(namespace)
		pod.Labels["tier"] = "front"
		pod.Spec.NodeName = "node-1"
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}
		return pod
	}
	newRule := func(namespace string, answer appsv1alpha1.UnguardedUpdates, selector *metav1.LabelSelector) *appsv1alpha1.PodTransitionRule {
		return &appsv1alpha1.PodTransitionRule{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
			Spec: appsv1alpha1.PodTransitionRuleSpec{
				Selector: selector, UnguardedUpdates: answer,
				Rules: []appsv1alpha1.TransitionRule{{Name: "approved", LabelCheck: &appsv1alpha1.LabelCheck{
					Requires: &metav1.LabelSelector{MatchLabels: map[string]string{"approved": "true"}},
				}}},
			},
		}
	}
	web := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	// denying creates a PodTransitionRule in a new namespace, and waits until API servers know it.
	denying := func(ctx context.Context, selector *metav1.LabelSelector) string {
		GinkgoHelper()
		namespace := newNamespace(ctx)
		Expect(server.admin.Create(ctx, newRule(namespace, appsv1alpha1.UnguardedUpdatesDeny, selector))).To(Succeed())
		probed := newRule(namespace, appsv1alpha1.UnguardedUpdatesDeny, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "probe"}})
		probed.Name = "probe"
		Expect(server.admin.Create(ctx, probed)).To(Succeed())
		probe := running(namespace)
		probe.Labels["app"] = "probe"
		stored(ctx, probe)
		Eventually(func() error { return patch(ctx, probe, "", setImage) }).Should(MatchError(ContainSubstring("PodTransitionRule probe")))
		return namespace
	}

	type attempt struct {
		change      func(*corev1.Pod) // of a pod on a node
		subresource string
		patch       string
		denied      bool
	}
	label := func(key, value string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Labels[key] = value }
	}
	operates := func(id, operationType string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Labels["operate.podopslifecycle.kusionstack.io/"+id] = "1"
			pod.Labels["operation-type.podopslifecycle.kusionstack.io/"+id] = operationType
			pod.Labels["operating.podopslifecycle.kusionstack.io/"+id] = "1"
		}
	}
	var namespace string
	BeforeAll(func(ctx context.Context) {
		// A resize needs the node of the pod.
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
		node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("8Gi")}
		node.Status.Capacity = node.Status.Allocatable
		Expect(server.admin.Create(ctx, node)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(server.admin.Delete(ctx, node)).To(Succeed()) })
		namespace = denying(ctx, web)
	})

	DescribeTable("decides", func(ctx context.Context, a attempt) {
		pod := running(namespace)
		if a.change != nil {
			a.change(pod)
		}
		err := patch(ctx, stored(ctx, pod), a.subresource, a.patch)
		if !a.denied {
			Expect(err).NotTo(HaveOccurred())
			return
		}
		Expect(err).To(Satisfy(apierrors.IsForbidden))
		Expect(err).To(MatchError(And(ContainSubstring("PodTransitionRule web (unguardedUpdates: Deny)"), ContainSubstring("create a PodOperation"))))
	},
		Entry("an image", attempt{patch: setImage, denied: true}),
		Entry("resources", attempt{subresource: "resize", patch: resize, denied: true}),
		Entry("a deadline", attempt{patch: `{"spec":{"activeDeadlineSeconds":5}}`, denied: true}),
		Entry("an image, with the labels by which the rule selects the pod", attempt{
			patch: `{"metadata":{"labels":{"app":"other","kusionstack.io/control":null}},"spec":{"containers":[{"name":"web","image":"web:2"}]}}`, denied: true,
		}),
		Entry("an image, with a permit that the same request forges", attempt{
			patch: `{"metadata":{"labels":{"operating.podopslifecycle.kusionstack.io/a":"1","operation-type.podopslifecycle.kusionstack.io/a":"update"}},` +
				`"spec":{"containers":[{"name":"web","image":"web:2"}]}}`, denied: true,
		}),
		Entry("an image while the pod waits", attempt{change: label("pre-check.podopslifecycle.kusionstack.io/a", "1"), patch: setImage, denied: true}),
		Entry("an image while a deletion may operate", attempt{change: operates("a", "delete"), patch: setImage, denied: true}),
		Entry("an image while PodOps may delete the pod", attempt{change: operates("pod-delete", "delete"), patch: setImage, denied: true}),
		Entry("an image while an update may operate", attempt{change: operates("a", "update"), patch: setImage}),
		Entry("resources while a resize may operate", attempt{change: operates("a", "resize"), subresource: "resize", patch: resize}),
		Entry("a label", attempt{patch: `{"metadata":{"labels":{"note":"x"}}}`}),
		Entry("a container to debug the pod", attempt{
			subresource: "ephemeralcontainers", patch: `{"spec":{"ephemeralContainers":[{"name":"debugger","image":"busybox"}]}}`,
		}),
		Entry("a pod that is on no node", attempt{change: func(pod *corev1.Pod) { pod.Spec.NodeName = "" }, patch: setImage}),
		Entry("a pod of another application", attempt{change: label("app", "other"), patch: setImage}),
		Entry("a pod without the label", attempt{change: label("kusionstack.io/control", "false"), patch: setImage}),
		Entry("a pod with break-glass", attempt{
			change: func(pod *corev1.Pod) {
				pod.Annotations = map[string]string{"podtransitionrule.kusionstack.io/break-glass": "INC-1"}
			},
			patch: setImage,
		}),
	)

	DescribeTable("selects by", func(ctx context.Context, selected, not *metav1.LabelSelectorRequirement) {
		for requirement, want := range map[*metav1.LabelSelectorRequirement]bool{selected: true, not: false} {
			namespace := denying(ctx, &metav1.LabelSelector{
				MatchLabels: web.MatchLabels, MatchExpressions: []metav1.LabelSelectorRequirement{*requirement},
			})
			err := patch(ctx, stored(ctx, running(namespace)), "", setImage)
			Expect(apierrors.IsForbidden(err)).To(Equal(want), fmt.Sprint(requirement, err))
		}
	},
		Entry("In", requirement("tier", "In", "front", "edge"), requirement("tier", "In", "back")),
		Entry("NotIn", requirement("tier", "NotIn", "back"), requirement("tier", "NotIn", "front")),
		Entry("NotIn without the label", requirement("zone", "NotIn", "a"), requirement("zone", "In", "a")),
		Entry("Exists", requirement("tier", "Exists"), requirement("zone", "Exists")),
		Entry("DoesNotExist", requirement("zone", "DoesNotExist"), requirement("tier", "DoesNotExist")),
	)

	It("ends with the rule, with Allow, and with the namespace outside of PodOps", func(ctx context.Context) {
		namespace := denying(ctx, web)
		pod := stored(ctx, running(namespace))
		attempt := func() error { return patch(ctx, pod, "", setImage) }
		rule := newRule(namespace, "", web)
		Expect(attempt()).To(Satisfy(apierrors.IsForbidden))

		set := func(object client.Object, patch string) {
			GinkgoHelper()
			Expect(server.admin.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
		}
		set(rule, `{"spec":{"unguardedUpdates":"Allow"}}`)
		Eventually(attempt).Should(Succeed())
		set(rule, `{"spec":{"unguardedUpdates":"Deny"}}`)
		Eventually(attempt).Should(Satisfy(apierrors.IsForbidden))

		object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		set(object, `{"metadata":{"annotations":{"podtransitionrule.kusionstack.io/break-glass":"INC-1"}}}`)
		Eventually(attempt).Should(Succeed())
		set(object, `{"metadata":{"annotations":null}}`)
		Eventually(attempt).Should(Satisfy(apierrors.IsForbidden))
		set(object, `{"metadata":{"labels":{"kusionstack.io/control":"false"}}}`)
		Eventually(attempt).Should(Succeed())
		set(object, `{"metadata":{"labels":{"kusionstack.io/control":null}}}`)
		Eventually(attempt).Should(Satisfy(apierrors.IsForbidden))

		Expect(server.admin.Delete(ctx, rule)).To(Succeed())
		Eventually(attempt).Should(Succeed())
	})

	It("is validated in a rule", func(ctx context.Context) {
		err := server.admin.Create(ctx, newRule(newNamespace(ctx), "Report", web), client.DryRunAll)
		Expect(err).To(MatchError(ContainSubstring(`spec.unguardedUpdates: Unsupported value: "Report": supported values: "Allow", "Deny"`)))
	})
})

func requirement(key string, operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelectorRequirement {
	return &metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: values}
}
