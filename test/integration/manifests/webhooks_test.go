package manifests_test

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/observed"
)

var _ = Describe("The webhooks", Ordered, func() {
	var namespace string

	BeforeAll(func(ctx context.Context) { namespace = newNamespace(ctx) })

	var (
		created = []string{"/mutate-v1-pod CREATE", "/validate-v1-pod CREATE"}
		updated = []string{"/mutate-v1-pod UPDATE", "/validate-v1-pod UPDATE"}
		held    = []string{"/hold-v1-pod-delete DELETE"}
		evicted = []string{"/hold-v1-pod-eviction CREATE"}
		nothing = []string(nil)
	)

	DescribeTable("review the creation of a pod", func(ctx context.Context, change func(*corev1.Pod), want []string) {
		pod := newPod(namespace)
		change(pod)
		manager.calls.reset(ctx)
		stored(ctx, pod)
		Expect(manager.calls.take()).To(Equal(want))
	},
		Entry("that is controlled", func(*corev1.Pod) {}, created),
		Entry("but not without the label", func(p *corev1.Pod) { p.Labels = nil }, nothing),
		Entry("but not with another value", func(p *corev1.Pod) { p.Labels[appsv1alpha1.ControlLabelKey] = "false" }, nothing),
		Entry("but not in kube-system", func(p *corev1.Pod) { p.Namespace = "kube-system" }, nothing),
		Entry("but not in podops-system", func(p *corev1.Pod) {
			p.Namespace = "podops-system"
			p.Spec = restrictedSpec()
		}, nothing),
	)

	DescribeTable("review an update of a pod", func(ctx context.Context, change func(*corev1.Pod), patch string, want []string) {
		pod := newPod(namespace)
		change(pod)
		stored(ctx, pod)
		manager.calls.reset(ctx, pod)
		Expect(server.admin.Patch(ctx, pod, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
		Expect(manager.calls.take()).To(Equal(want))
	},
		Entry("in a label", same, `{"metadata":{"labels":{"x":"y"}}}`, updated),
		Entry("in the control label", same, `{"metadata":{"labels":{"kusionstack.io/control":null}}}`, updated),
		Entry("that removes its last labels", same, `{"metadata":{"labels":null}}`, updated),
		Entry("that adds the control label", func(p *corev1.Pod) { p.Labels = nil }, `{"metadata":{"labels":{"kusionstack.io/control":"true"}}}`, updated),
		Entry("in a first finalizer", same, `{"metadata":{"finalizers":["example.com/x"]}}`, updated),
		Entry("in the last finalizer", withFinalizer, `{"metadata":{"finalizers":null}}`, updated),
		Entry("in expected finalizers", same, `{"metadata":{"annotations":{"pod.kusionstack.io/available-conditions":"{}"}}}`, updated),
		Entry("in expected finalizers among annotations", func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} },
			`{"metadata":{"annotations":{"pod.kusionstack.io/available-conditions":"{}"}}}`, updated),
		Entry("in the record of a pending delete", same, `{"metadata":{"annotations":{"podopslifecycle.kusionstack.io/pending-delete":"{}"}}}`, updated),
		Entry("but not in another annotation", same, `{"metadata":{"annotations":{"x":"y"}}}`, nothing),
		Entry("but not in its spec", same, `{"spec":{"activeDeadlineSeconds":1000}}`, nothing),
		Entry("but not in the last annotation", func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} },
			`{"metadata":{"annotations":null}}`, nothing),
		Entry("but not when nothing changes", same, `{}`, nothing),
	)

	It("do not review pods/status", func(ctx context.Context) {
		pod := stored(ctx, newPod(namespace))
		manager.calls.reset(ctx, pod)
		Expect(patchStatus(ctx, server.admin, pod, `{"status":{"phase":"Running"}}`)).To(Succeed())
		Expect(patchStatus(ctx, as(managerUser, []string{"system:masters"}), pod,
			`{"metadata":{"labels":{"`+lifecycleLabel+`":"1"}}}`)).To(Succeed())
		Expect(manager.calls.take()).To(BeEmpty())
	})

	It("do not review a terminating pod", func(ctx context.Context) {
		pod := newPod(namespace)
		withFinalizer(pod)
		stored(ctx, pod)
		Expect(server.admin.Delete(ctx, pod)).To(Succeed())
		manager.calls.reset(ctx, pod)
		for _, patch := range []string{`{"metadata":{"labels":{"x":"y"}}}`, `{"metadata":{"finalizers":null}}`} {
			Expect(observed.Object(ctx, server.admin, pod)).To(Succeed())
			Expect(server.admin.Patch(ctx, pod, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
		}
		Expect(manager.calls.take()).To(BeEmpty())
	})

	DescribeTable("review a delete of a pod", func(ctx context.Context, user string, change func(*corev1.Pod), phase string, want []string, options ...client.DeleteOption) {
		pod := newPod(namespace)
		pod.Spec.NodeName = "n1" // the API server leaves no grace to a pod that is on no node
		change(pod)
		stored(ctx, pod)
		if phase != "" {
			Expect(patchStatus(ctx, server.admin, pod, `{"status":{"phase":"`+phase+`"}}`)).To(Succeed())
		}
		manager.calls.reset(ctx, pod)
		groups := []string{"system:masters"}
		if strings.HasPrefix(user, "system:node:") {
			groups = append(groups, "system:nodes")
		}
		Expect(as(user, groups).Delete(ctx, pod, options...)).To(Succeed())
		Expect(manager.calls.take()).To(Equal(want))
	},
		Entry("by the ReplicaSet controller", replicaSetUser, same, "Running", held),
		Entry("by the one user of all controllers", "system:kube-controller-manager", same, "", held),
		Entry("by a user", "jane", same, "Running", held),
		Entry("with a grace period", "jane", same, "Running", held, client.GracePeriodSeconds(1)),
		Entry("but not without one", "jane", same, "Running", nothing, client.GracePeriodSeconds(0)),
		Entry("by the StatefulSet controller", "system:serviceaccount:kube-system:statefulset-controller", same, "Running", held),
		Entry("but not before it is on a node", "jane", func(p *corev1.Pod) { p.Spec.NodeName = "" }, "", nothing),
		Entry("of a pod without grace in its spec", "jane", func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(0)) }, "Running", held),
		Entry("but not by the namespace controller", "system:serviceaccount:kube-system:namespace-controller", same, "Running", nothing),
		Entry("but not by the garbage collector of pods", "system:serviceaccount:kube-system:pod-garbage-collector", same, "Running", nothing),
		Entry("but not by the garbage collector", "system:serviceaccount:kube-system:generic-garbage-collector", same, "Running", nothing),
		Entry("but not by a kubelet", "system:node:n1", same, "Running", nothing),
		Entry("but not when it succeeded", replicaSetUser, same, "Succeeded", nothing),
		Entry("but not when it failed", replicaSetUser, same, "Failed", nothing),
		Entry("but not when it is not controlled", replicaSetUser, func(p *corev1.Pod) { p.Labels = nil }, "Running", nothing),
		Entry("but not when it is a mirror", replicaSetUser, func(p *corev1.Pod) {
			p.Annotations = map[string]string{"kubernetes.io/config.mirror": "x"}
			p.Spec.NodeName = "n1"
		}, "Running", nothing),
	)

	DescribeTable("review an eviction", func(ctx context.Context, user string, change func(*corev1.Pod), want []string) {
		pod := newPod(namespace)
		change(pod)
		stored(ctx, pod)
		manager.calls.reset(ctx, pod)
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
		Expect(as(user, []string{"system:masters"}).SubResource("eviction").Create(ctx, pod, eviction)).To(Succeed())
		Expect(manager.calls.take()).To(Equal(want))
	},
		Entry("by a user", "jane", same, evicted),
		// Its review does not contain the labels of the pod.
		Entry("of a pod that is not controlled", "jane", func(p *corev1.Pod) { p.Labels = nil }, evicted),
		Entry("but not in kube-system", "jane", func(p *corev1.Pod) { p.Namespace = "kube-system" }, nothing),
	)

	It("limit the manager's evictions to the version of a pod that it has read", func(ctx context.Context) {
		pod := stored(ctx, newPod(namespace))
		evict := func(pod *corev1.Pod, preconditions *metav1.Preconditions) error {
			return as(managerUser, []string{"system:masters"}).SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{
				ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, DeleteOptions: &metav1.DeleteOptions{Preconditions: preconditions},
			})
		}
		Eventually(func() error { return evict(pod, &metav1.Preconditions{UID: &pod.UID}) }).
			Should(MatchError(ContainSubstring("only the version of a pod that it has read")))
		Expect(evict(pod, nil)).To(MatchError(ContainSubstring("only the version of a pod that it has read")))
		system := newPod("kube-system")
		system = stored(ctx, system)
		Expect(evict(system, &metav1.Preconditions{UID: &system.UID, ResourceVersion: &system.ResourceVersion})).
			To(MatchError(ContainSubstring("evicts no pod of kube-system")))
		Expect(evict(pod, &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion})).To(Succeed())
	})

	It("review a delete once", func(ctx context.Context) {
		pod := newPod(namespace)
		pod.Spec.NodeName = "n1"
		withFinalizer(pod)
		stored(ctx, pod)
		controller := as(replicaSetUser, []string{"system:masters"})
		manager.calls.reset(ctx, pod)
		Expect(controller.Delete(ctx, pod)).To(Succeed())
		Expect(manager.calls.take()).To(Equal(held))
		manager.calls.reset(ctx, pod)
		Expect(controller.Delete(ctx, pod)).To(Succeed(), "it must be terminating")
		Expect(manager.calls.take()).To(BeEmpty())
	})

	It("review a rule until it is deleted", func(ctx context.Context) {
		quarter := intstr.FromString("25%")
		rule := &appsv1alpha1.PodTransitionRule{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", Finalizers: []string{"example.com/x"}},
			Spec: appsv1alpha1.PodTransitionRuleSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
				Rules: []appsv1alpha1.TransitionRule{{
					Name:            "availability",
					AvailablePolicy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: &quarter},
				}},
			},
		}
		manager.calls.reset(ctx)
		Expect(server.admin.Create(ctx, rule)).To(Succeed())
		Expect(manager.calls.take()).To(Equal([]string{
			"/mutate-apps-kusionstack-io-v1alpha1-podtransitionrule CREATE",
			"/validate-apps-kusionstack-io-v1alpha1-podtransitionrule CREATE",
		}))
		manager.calls.reset(ctx, rule)
		Expect(server.admin.Patch(ctx, rule, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`)))).To(Succeed())
		Expect(manager.calls.take()).To(Equal([]string{"/mutate-apps-kusionstack-io-v1alpha1-podtransitionrule UPDATE"}),
			"only a change of the spec of a rule is validated")
		manager.calls.reset(ctx, rule)
		Expect(server.admin.Delete(ctx, rule)).To(Succeed())
		Expect(manager.calls.take()).To(Equal([]string{"/delete-apps-kusionstack-io-v1alpha1-podtransitionrule DELETE"}))
		manager.calls.reset(ctx, rule)
		Expect(server.admin.Patch(ctx, rule, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
		Expect(manager.calls.take()).To(BeEmpty())
	})

	It("review the spec of a policy, and its delete", func(ctx context.Context) {
		const validate, remove = "/validate-apps-kusionstack-io-v1alpha1-podtransitionpolicy", "/delete-apps-kusionstack-io-v1alpha1-podtransitionpolicy"
		policy := &appsv1alpha1.PodTransitionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "freeze", Finalizers: []string{"example.com/x"}},
			Spec:       appsv1alpha1.PodTransitionPolicySpec{Module: "package rule"},
		}
		patch := func(text string) {
			GinkgoHelper()
			manager.calls.reset(ctx, policy)
			Expect(server.admin.Patch(ctx, policy, client.RawPatch(types.MergePatchType, []byte(text)))).To(Succeed())
		}
		manager.calls.reset(ctx)
		Expect(server.admin.Create(ctx, policy)).To(Succeed())
		Expect(manager.calls.take()).To(Equal([]string{validate + " CREATE"}))
		patch(`{"metadata":{"labels":{"a":"b"}}}`)
		Expect(manager.calls.take()).To(BeEmpty())
		patch(`{"spec":{"description":"x"}}`)
		Expect(manager.calls.take()).To(Equal([]string{validate + " UPDATE"}))
		manager.calls.reset(ctx, policy)
		Expect(server.admin.DeleteAllOf(ctx, policy)).To(Succeed())
		Expect(manager.calls.take()).To(Equal([]string{remove + " DELETE"}), "each object must be reviewed by itself")
		Expect(server.admin.Delete(ctx, policy)).To(Succeed(), "it must be terminating")
		patch(`{"metadata":{"finalizers":null}}`)
		Expect(manager.calls.take()).To(BeEmpty())
	})
})

func same(*corev1.Pod) {}

func withFinalizer(pod *corev1.Pod) { pod.Finalizers = []string{"example.com/x"} }

// restrictedSpec returns a spec that the pod security standard of podops-system admits.
func restrictedSpec() corev1.PodSpec {
	yes, no := true, false
	return corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:   &yes,
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name: "web", Image: "web",
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: &no,
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		}},
	}
}
