package resourceconsist_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/resourceconsist"
)

var _ = Describe("A controller of an adapter", func() {
	ours := resourceconsist.GenerateLifecycleFinalizer("web")

	It("lets 199 pods proceed while one of 200 always fails, and names that one", func(ctx context.Context) {
		namespace := in(ctx)
		balancer.refuse(namespace + "/" + named(42))
		for i := range 200 {
			serving(ctx, namespace, named(i))
		}
		Eventually(protected(ctx, namespace)).Should(And(HaveLen(199), Not(HaveKey(named(42)))))

		By("naming it in an event")
		Eventually(func() ([]string, error) { return notes(ctx, namespace) }).
			Should(ContainElement(ContainSubstring(named(42) + ": CreateEmployees: quota exceeded")))

		By("naming it in the status of the Service")
		Eventually(func() (string, error) {
			service := &corev1.Service{}
			err := admin.Get(ctx, types.NamespacedName{Namespace: namespace, Name: "web"}, service)
			if condition := meta.FindStatusCondition(service.Status.Conditions, resourceconsist.ConditionConsistent); condition != nil {
				return condition.Message, err
			}
			return "", err
		}).Should(ContainSubstring(named(42) + ": CreateEmployees: quota exceeded"))

		By("naming it, and no other pod, in a metric")
		Eventually(func() (map[string]float64, error) { return employeesWithErrors(namespace) }).
			Should(And(HaveLen(1), HaveKeyWithValue(named(42), BeNumerically(">=", 1))))

		By("taking the others off traffic as before")
		for i := range 5 {
			prepare(ctx, namespace, named(i))
		}
		Eventually(protected(ctx, namespace)).Should(HaveLen(194))
	})

	It("keeps the finalizer until traffic is off, also on a pod that terminates", func(ctx context.Context) {
		namespace := in(ctx)
		serving(ctx, namespace, "a")
		serving(ctx, namespace, "b")
		Eventually(protected(ctx, namespace)).Should(HaveLen(2))

		balancer.stick(true)
		DeferCleanup(func() { balancer.stick(false) })
		prepare(ctx, namespace, "a")
		Expect(admin.Delete(ctx, pod(ctx, namespace, "b"), client.GracePeriodSeconds(0))).To(Succeed())
		Consistently(protected(ctx, namespace), "2s").Should(HaveLen(2))

		balancer.stick(false)
		Eventually(finalizers(ctx, namespace, "a")).ShouldNot(ContainElement(ours))
		Eventually(func() bool {
			_, err := finalizers(ctx, namespace, "b")()
			return apierrors.IsNotFound(err)
		}).Should(BeTrue(), "the finalizer alone must have kept b")
		Eventually(balancer.size(namespace)).Should(Equal(1))
	})

	It("leaves nothing behind when the employer is deleted", func(ctx context.Context) {
		namespace := in(ctx)
		serving(ctx, namespace, "a")
		Eventually(protected(ctx, namespace)).Should(HaveLen(1))

		service := &corev1.Service{}
		key := types.NamespacedName{Namespace: namespace, Name: "web"}
		Expect(admin.Get(ctx, key, service)).To(Succeed())
		Expect(service.Finalizers).To(ConsistOf("resource-consist.kusionstack.io/clean-web"))
		Expect(admin.Delete(ctx, service)).To(Succeed())

		Eventually(func() bool { return apierrors.IsNotFound(admin.Get(ctx, key, service)) }).Should(BeTrue())
		Expect(balancer.size(namespace)()).To(BeZero())
		left := pod(ctx, namespace, "a")
		Expect(left.Finalizers).To(BeEmpty())
		Expect(left.Annotations).NotTo(HaveKey(appsv1alpha1.AvailableConditionsAnnotationKey))
	})

	It("follows a pod from one employer to another", func(ctx context.Context) {
		namespace := in(ctx)
		serving(ctx, namespace, "a")
		Eventually(protected(ctx, namespace)).Should(HaveLen(1))
		moved := pod(ctx, namespace, "a")
		base := moved.DeepCopy()
		moved.Labels["app"] = "other"
		Expect(admin.Patch(ctx, moved, client.MergeFrom(base))).To(Succeed())
		Eventually(finalizers(ctx, namespace, "a")).Should(BeEmpty())
		Expect(pod(ctx, namespace, "a").Annotations).NotTo(HaveKey(appsv1alpha1.AvailableConditionsAnnotationKey))
		Eventually(balancer.size(namespace)).Should(BeZero())
	})
})

func pod(ctx context.Context, namespace, name string) *corev1.Pod {
	GinkgoHelper()
	pod := &corev1.Pod{}
	Expect(admin.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, pod)).To(Succeed())
	return pod
}

// prepare sets the labels that the lifecycle sets at a permit.
func prepare(ctx context.Context, namespace, name string) {
	GinkgoHelper()
	prepared := pod(ctx, namespace, name)
	base := prepared.DeepCopy()
	prepared.Labels[appsv1alpha1.PrepareLabelPrefix+"/x"] = "1"
	Expect(admin.Patch(ctx, prepared, client.MergeFrom(base))).To(Succeed())
}

// notes returns the notes of the events in a namespace.
func notes(ctx context.Context, namespace string) ([]string, error) {
	var events eventsv1.EventList
	err := admin.List(ctx, &events, client.InNamespace(namespace))
	var texts []string
	for i := range events.Items {
		texts = append(texts, events.Items[i].Note)
	}
	return texts, err
}

// employeesWithErrors reads the metric of the employees in a namespace.
func employeesWithErrors(namespace string) (map[string]float64, error) {
	families, err := registry.Gather()
	failing := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if labels["namespace"] == namespace {
				failing[labels["employee"]] = metric.GetGauge().GetValue()
			}
		}
	}
	return failing, err
}
