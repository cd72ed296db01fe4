package manifests_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	lifecycleLabel      = "operating.podopslifecycle.kusionstack.io/a"
	protectionFinalizer = "prot.podopslifecycle.kusionstack.io/e54505f60aa10ceb"
	expectedAnnotation  = "pod.kusionstack.io/available-conditions"
)

var _ = Describe("The policy for pods/status", Ordered, func() {
	var namespace string

	BeforeAll(func(ctx context.Context) {
		namespace = newNamespace(ctx)
		// The API server learns of a policy by a watch.
		probe := stored(ctx, newPod(namespace))
		Eventually(func() error {
			return patchStatus(ctx, server.admin, probe, `{"metadata":{"labels":{"`+lifecycleLabel+`":"1"}}}`, client.DryRunAll)
		}).Should(Satisfy(apierrors.IsForbidden))
	})

	type attempt struct {
		change func(*corev1.Pod) // of a pod with one of each kind of metadata
		patch  string
		denied string // part of the message; empty: allowed
	}
	bare := func(pod *corev1.Pod) { pod.Annotations, pod.Finalizers = nil, nil }
	uncontrolled := func(pod *corev1.Pod) { pod.Labels = nil }

	DescribeTable("decides a request", func(ctx context.Context, a attempt) {
		pod := newPod(namespace)
		pod.Labels[lifecycleLabel] = "1"
		pod.Annotations = map[string]string{expectedAnnotation: `{}`, "note": "x"}
		pod.Finalizers = []string{protectionFinalizer, "example.com/other"}
		if a.change != nil {
			a.change(pod)
		}
		pod = stored(ctx, pod)

		err := patchStatus(ctx, server.admin, pod, a.patch)
		if a.denied == "" {
			Expect(err).NotTo(HaveOccurred())
		} else {
			Expect(err).To(Satisfy(apierrors.IsForbidden))
			Expect(err).To(MatchError(ContainSubstring(a.denied)))
		}
		// The policy exempts the manager; its own policy denies some of these, see
		// manager_policy_test.go.
		err = patchStatus(ctx, as(managerUser, []string{"system:masters"}), pod, a.patch)
		Expect(err).To(Or(Not(HaveOccurred()), MatchError(ContainSubstring("ValidatingAdmissionPolicy 'podops-manager'"))))
	},
		Entry("a condition", attempt{
			patch: `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`,
		}),
		Entry("a condition of a pod without annotations and finalizers", attempt{
			change: bare, patch: `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`,
		}),
		Entry("a foreign label", attempt{
			patch: `{"metadata":{"labels":{"example.com/x":"1"}}}`,
		}),
		Entry("a foreign label on a pod without any", attempt{
			change: uncontrolled, patch: `{"metadata":{"labels":{"example.com/x":"1"}}}`,
		}),
		Entry("a lifecycle label on a pod that is not controlled", attempt{
			change: uncontrolled, patch: `{"metadata":{"labels":{"` + lifecycleLabel + `":"1"}}}`,
		}),
		Entry("a lifecycle label added", attempt{
			patch:  `{"metadata":{"labels":{"operate.podopslifecycle.kusionstack.io/a":"1"}}}`,
			denied: "the label operate.podopslifecycle.kusionstack.io/a",
		}),
		Entry("a lifecycle label without an id added", attempt{
			patch:  `{"metadata":{"labels":{"podopslifecycle.kusionstack.io/service-available":"1"}}}`,
			denied: "the label podopslifecycle.kusionstack.io/service-available",
		}),
		Entry("a lifecycle label changed", attempt{
			patch: `{"metadata":{"labels":{"` + lifecycleLabel + `":"2"}}}`, denied: "the label " + lifecycleLabel,
		}),
		Entry("a lifecycle label removed", attempt{
			patch: `{"metadata":{"labels":{"` + lifecycleLabel + `":null}}}`, denied: "the label " + lifecycleLabel,
		}),
		Entry("the control label removed", attempt{
			patch: `{"metadata":{"labels":{"kusionstack.io/control":null}}}`, denied: "the label kusionstack.io/control",
		}),
		Entry("every label removed", attempt{
			patch: `{"metadata":{"labels":null}}`, denied: "the label ",
		}),
		Entry("the control label added", attempt{
			change: uncontrolled,
			patch:  `{"metadata":{"labels":{"kusionstack.io/control":"true"}}}`, denied: "the label kusionstack.io/control",
		}),
		Entry("the label that deletes a pod", attempt{
			patch:  `{"metadata":{"labels":{"collaset.kusionstack.io/to-delete":"true"}}}`,
			denied: "the label collaset.kusionstack.io/to-delete",
		}),
		Entry("a foreign annotation", attempt{
			change: bare, patch: `{"metadata":{"annotations":{"note":"y"}}}`,
		}),
		Entry("expected finalizers changed", attempt{
			patch:  `{"metadata":{"annotations":{"` + expectedAnnotation + `":"{\"expectedFinalizers\":{}}"}}}`,
			denied: "the annotation " + expectedAnnotation,
		}),
		Entry("expected finalizers added", attempt{
			change: bare,
			patch:  `{"metadata":{"annotations":{"` + expectedAnnotation + `":"{}"}}}`, denied: "the annotation " + expectedAnnotation,
		}),
		Entry("every annotation removed", attempt{
			patch: `{"metadata":{"annotations":null}}`, denied: "the annotation " + expectedAnnotation,
		}),
		Entry("rules skipped", attempt{
			patch:  `{"metadata":{"annotations":{"podtransitionrule.kusionstack.io/skip-rule-conditions":"{}"}}}`,
			denied: "the annotation podtransitionrule.kusionstack.io/skip-rule-conditions",
		}),
		Entry("a break-glass", attempt{
			patch:  `{"metadata":{"annotations":{"podtransitionrule.kusionstack.io/break-glass":"now"}}}`,
			denied: "the annotation podtransitionrule.kusionstack.io/break-glass",
		}),
		Entry("a deletion cost to restore", attempt{
			patch:  `{"metadata":{"annotations":{"podopslifecycle.kusionstack.io/previous-deletion-cost":"7"}}}`,
			denied: "the annotation podopslifecycle.kusionstack.io/previous-deletion-cost",
		}),
		Entry("the record of an operation", attempt{
			patch:  `{"metadata":{"annotations":{"podoperation.kusionstack.io/1":"{}"}}}`,
			denied: "the annotation podoperation.kusionstack.io/1",
		}),
		Entry("a foreign finalizer removed", attempt{
			patch: `{"metadata":{"finalizers":["` + protectionFinalizer + `"]}}`,
		}),
		Entry("finalizers in another order", attempt{
			patch: `{"metadata":{"finalizers":["example.com/other","` + protectionFinalizer + `"]}}`,
		}),
		Entry("a protection finalizer removed", attempt{
			patch: `{"metadata":{"finalizers":["example.com/other"]}}`, denied: "the finalizer " + protectionFinalizer,
		}),
		Entry("every finalizer removed", attempt{
			patch: `{"metadata":{"finalizers":null}}`, denied: "the finalizer " + protectionFinalizer,
		}),
		Entry("a protection finalizer added", attempt{
			change: bare,
			patch:  `{"metadata":{"finalizers":["` + protectionFinalizer + `"]}}`, denied: "the finalizer " + protectionFinalizer,
		}),
		Entry("a pod with 500 lifecycle labels", attempt{
			change: func(pod *corev1.Pod) {
				for i := range 500 {
					pod.Labels[fmt.Sprintf("operated.podopslifecycle.kusionstack.io/%d", i)] = "1"
				}
			},
			patch: `{"metadata":{"labels":{"` + lifecycleLabel + `":null}}}`, denied: "the label " + lifecycleLabel,
		}),
	)
})

func patchStatus(ctx context.Context, c client.Client, pod *corev1.Pod, patch string, opts ...client.SubResourcePatchOption) error {
	return c.Status().Patch(ctx, pod.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), opts...)
}
