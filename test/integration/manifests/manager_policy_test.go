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

	"github.com/podops-dev/podops/pkg/state/podwriter"
)

var _ = Describe("The policy for the manager", Ordered, func() {
	var (
		namespace string
		manager   client.Client
	)

	BeforeAll(func(ctx context.Context) {
		namespace, manager = newNamespace(ctx), asManager()
		// The API server learns of a policy by a watch.
		probe := stored(ctx, newPod(namespace))
		Eventually(func() error {
			return patchPod(ctx, manager, probe, `{"metadata":{"labels":{"app":"other"}}}`, client.DryRunAll)
		}).Should(Satisfy(apierrors.IsForbidden))
	})

	type attempt struct {
		change func(*corev1.Pod) // of a controlled pod with a lifecycle label and two finalizers
		patch  string
		status bool // the request goes to pods/status
		resize bool // the request goes to pods/resize
		dryRun bool
		denied string // part of the message; empty: allowed
	}
	uncontrolled := func(pod *corev1.Pod) { delete(pod.Labels, "kusionstack.io/control") }
	operated := func(pod *corev1.Pod) { pod.Labels["operate.podopslifecycle.kusionstack.io/podoperation-1"] = "1" }

	It("denies additions to a pod that has lost the control label, which the manager takes as a pod that has changed", func(ctx context.Context) {
		pod := newPod(namespace)
		uncontrolled(pod)
		pod = stored(ctx, pod)
		written, err := podwriter.PatchMetadata(ctx, manager, pod, map[string]any{"operating.podopslifecycle.kusionstack.io/b": "1"}, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(written).To(BeNil())
	})

	DescribeTable("limits a patch", func(ctx context.Context, a attempt) {
		pod := newPod(namespace)
		pod.Labels[lifecycleLabel] = "1"
		if a.resize {
			pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}
		}
		pod.Annotations = map[string]string{expectedAnnotation: `{}`, "note": "x"}
		pod.Finalizers = []string{protectionFinalizer, "example.com/other"}
		if a.change != nil {
			a.change(pod)
		}
		pod = stored(ctx, pod)
		patch := patchPod
		if a.status {
			patch = func(ctx context.Context, c client.Client, pod *corev1.Pod, patch string, _ ...client.PatchOption) error {
				return patchStatus(ctx, c, pod, patch)
			}
		}
		if a.resize {
			patch = func(ctx context.Context, c client.Client, pod *corev1.Pod, patch string, _ ...client.PatchOption) error {
				return c.SubResource("resize").Patch(ctx, pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(patch)))
			}
		}
		c := manager
		if a.dryRun {
			c = client.NewDryRunClient(manager)
		}
		err := patch(ctx, c, pod, a.patch)
		if a.denied == "" {
			Expect(err).NotTo(HaveOccurred())
			return
		}
		Expect(err).To(Satisfy(apierrors.IsForbidden))
		Expect(err).To(MatchError(ContainSubstring(a.denied)))
	},
		Entry("lifecycle labels, annotations of PodOps and a protection finalizer", attempt{
			patch: `{"metadata":{"labels":{"operating.podopslifecycle.kusionstack.io/b":"1","podopslifecycle.kusionstack.io/preparing-to-delete":"1"},` +
				`"annotations":{"` + expectedAnnotation + `":"{\"expectedFinalizers\":{}}","controller.kubernetes.io/pod-deletion-cost":"-5"},` +
				`"finalizers":["example.com/other"]}}`,
		}),
		Entry("a permit with the gate", attempt{
			status: true,
			patch: `{"metadata":{"labels":{"pre-checked.podopslifecycle.kusionstack.io/a":"1"},"annotations":{"detail.podtransitionrule.kusionstack.io/web":"{}"}},` +
				`"status":{"conditions":[{"type":"pod.kusionstack.io/service-ready","status":"False"}]}}`,
		}),
		Entry("remaining labels of a pod that is no longer controlled", attempt{
			change: uncontrolled,
			patch:  `{"metadata":{"labels":{"` + lifecycleLabel + `":null},"annotations":{"` + expectedAnnotation + `":null},"finalizers":["example.com/other"]}}`,
		}),
		Entry("a lifecycle label added to a pod that is not controlled", attempt{
			change: uncontrolled, patch: `{"metadata":{"labels":{"operating.podopslifecycle.kusionstack.io/b":"1"}}}`,
			denied: "adds nothing to a pod without the label kusionstack.io/control",
		}),
		Entry("the control label", attempt{
			patch: `{"metadata":{"labels":{"kusionstack.io/control":null}}}`, denied: "the label kusionstack.io/control",
		}),
		Entry("a label that selects the pod", attempt{
			patch: `{"metadata":{"labels":{"app":"other"}}}`, denied: "the label app",
		}),
		Entry("a label that selects the pod, by its status", attempt{
			status: true, patch: `{"metadata":{"labels":{"app":"other"}}}`, denied: "the label app",
		}),
		Entry("a foreign annotation", attempt{
			patch: `{"metadata":{"annotations":{"note":null}}}`, denied: "the annotation note",
		}),
		Entry("the rules that a pod skips", attempt{
			patch:  `{"metadata":{"annotations":{"podtransitionrule.kusionstack.io/skip-rule-conditions":"{}"}}}`,
			denied: "the annotation podtransitionrule.kusionstack.io/skip-rule-conditions",
		}),
		Entry("a break-glass", attempt{
			patch:  `{"metadata":{"annotations":{"podtransitionrule.kusionstack.io/break-glass":"now"}}}`,
			denied: "the annotation podtransitionrule.kusionstack.io/break-glass",
		}),
		Entry("a foreign finalizer", attempt{
			patch: `{"metadata":{"finalizers":["` + protectionFinalizer + `"]}}`, denied: "the finalizer example.com/other",
		}),
		Entry("the owners", attempt{
			patch:  `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"1"}]}}`,
			denied: "the owners of a pod",
		}),
		Entry("the Deployment as the controller in place of the ReplicaSet", attempt{
			change: ownedBy("ReplicaSet", "web-5d4"), patch: ownersPatch("Deployment", "web"),
		}),
		Entry("the ReplicaSet as the controller in place of the Deployment", attempt{
			change: ownedBy("Deployment", "web"), patch: ownersPatch("ReplicaSet", "web-5d4"),
		}),
		Entry("another Deployment as the controller", attempt{
			change: ownedBy("ReplicaSet", "web-5d4"), patch: ownersPatch("Deployment", "api"), denied: "the owners of a pod",
		}),
		Entry("another ReplicaSet as the controller", attempt{
			change: ownedBy("ReplicaSet", "web-5d4"), patch: ownersPatch("ReplicaSet", "web"), denied: "the owners of a pod",
		}),
		Entry("no controller", attempt{
			change: ownedBy("ReplicaSet", "web-5d4"), patch: `{"metadata":{"ownerReferences":null}}`, denied: "the owners of a pod",
		}),
		Entry("the Deployment as the controller of a pod without the control label", attempt{
			change: func(pod *corev1.Pod) { ownedBy("ReplicaSet", "web-5d4")(pod); uncontrolled(pod) },
			patch:  ownersPatch("Deployment", "web"), denied: "the owners of a pod",
		}),
		Entry("another owner beside the Deployment", attempt{
			change: ownedBy("ReplicaSet", "web-5d4"), denied: "the owners of a pod",
			patch: `{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"web","uid":"1","controller":true},` +
				`{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"2"}]}}`,
		}),
		Entry("the image", attempt{
			patch: `{"spec":{"containers":[{"name":"web","image":"evil"}]}}`, denied: "the spec of a pod",
		}),
		Entry("the image of a pod that another operation controller may operate on", attempt{
			change: func(pod *corev1.Pod) { pod.Labels["operate.podopslifecycle.kusionstack.io/updater"] = "1" },
			patch:  `{"spec":{"containers":[{"name":"web","image":"evil"}]}}`, denied: "the spec of a pod",
		}),
		Entry("the image of a pod that a PodOperation may operate on", attempt{
			change: operated,
			patch:  `{"metadata":{"annotations":{"podoperation.kusionstack.io/1":"{}"}},"spec":{"containers":[{"name":"web","image":"web:2","imagePullPolicy":"Always"}]}}`,
		}),
		Entry("the digest of such an image", attempt{
			change: operated,
			patch: `{"spec":{"containers":[{"name":"web","image":"web:2@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",` +
				`"imagePullPolicy":"Always"}]}}`,
		}),
		Entry("the repository of such an image", attempt{
			change: operated,
			patch:  `{"spec":{"containers":[{"name":"web","image":"evil/web:2","imagePullPolicy":"Always"}]}}`, denied: "the tag or digest of an image",
		}),
		Entry("the registry of such an image, at a port", attempt{
			change: operated,
			patch:  `{"spec":{"containers":[{"name":"web","image":"web:5000/web","imagePullPolicy":"Always"}]}}`, denied: "the tag or digest of an image",
		}),
		Entry("the tag of an image of a registry at a port", attempt{
			change: func(pod *corev1.Pod) { operated(pod); pod.Spec.Containers[0].Image = "registry:5000/team/web:1" },
			patch:  `{"spec":{"containers":[{"name":"web","image":"registry:5000/team/web:2","imagePullPolicy":"IfNotPresent"}]}}`,
		}),
		Entry("the image of such a pod without the control label", attempt{
			change: func(pod *corev1.Pod) { operated(pod); uncontrolled(pod) },
			patch:  `{"spec":{"containers":[{"name":"web","image":"web:2","imagePullPolicy":"Always"}]}}`, denied: "the spec of a pod",
		}),
		Entry("the deadline of a pod that a PodOperation may operate on", attempt{
			change: operated, patch: `{"spec":{"activeDeadlineSeconds":99}}`, denied: "images of containers only",
		}),
		Entry("the resources of a pod that a PodOperation may operate on", attempt{
			change: operated, resize: true,
			patch: `{"spec":{"containers":[{"name":"web","resources":{"requests":{"cpu":"20m"}}}]}}`,
		}),
		Entry("the resources of any other pod", attempt{
			resize: true, patch: `{"spec":{"containers":[{"name":"web","resources":{"requests":{"cpu":"20m"}}}]}}`, denied: "the spec of a pod",
		}),
		Entry("the tag of an image of any other pod, in a dry run", attempt{
			dryRun: true, patch: `{"spec":{"containers":[{"name":"web","image":"web:2","imagePullPolicy":"Always"}]}}`,
		}),
		Entry("the resources of any other pod, in a dry run", attempt{
			dryRun: true, resize: true, patch: `{"spec":{"containers":[{"name":"web","resources":{"requests":{"cpu":"20m"}}}]}}`,
		}),
		Entry("the repository of such an image, in a dry run", attempt{
			dryRun: true, patch: `{"spec":{"containers":[{"name":"web","image":"evil/web:2","imagePullPolicy":"Always"}]}}`, denied: "the tag or digest of an image",
		}),
		Entry("the image of a pod without the control label, in a dry run", attempt{
			change: uncontrolled, dryRun: true,
			patch: `{"spec":{"containers":[{"name":"web","image":"web:2","imagePullPolicy":"Always"}]}}`, denied: "the spec of a pod",
		}),
		Entry("the condition Ready", attempt{
			status: true, patch: `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, denied: "conditions of PodOps only",
		}),
		Entry("the address of the pod", attempt{
			status: true, patch: `{"status":{"podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"}]}}`, denied: "conditions of the status only",
		}),
	)

	It("lets the manager delete controlled pods only", func(ctx context.Context) {
		controlled := stored(ctx, newPod(namespace))
		other := newPod(namespace)
		uncontrolled(other)
		other = stored(ctx, other)
		Expect(manager.Delete(ctx, controlled)).To(Succeed())
		Expect(manager.Delete(ctx, other)).To(Satisfy(apierrors.IsForbidden))
	})
})

// ownedBy makes a workload the controller of a pod.
func ownedBy(kind, name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: "1", Controller: new(true)}}
	}
}

// ownersPatch makes a workload the only owner of a pod.
func ownersPatch(kind, name string) string {
	return fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":%q,"name":%q,"uid":"1","controller":true}]}}`, kind, name)
}

// asManager returns a client with the identity and the rights of the manager.
func asManager() client.Client {
	GinkgoHelper()
	c, err := client.New(configAsManager(), client.Options{Scheme: server.scheme})
	Expect(err).NotTo(HaveOccurred())
	return c
}

func patchPod(ctx context.Context, c client.Client, pod *corev1.Pod, patch string, opts ...client.PatchOption) error {
	return c.Patch(ctx, pod.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), opts...)
}
