package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/audit"
	"github.com/podops-dev/podops/test/expect"
)

var _ = Describe("A PodOperation", func() {
	var p scenario

	BeforeEach(func(ctx context.Context) { p = newScenario(ctx) })

	restart := appsv1alpha1.PodOperationAction{Type: appsv1alpha1.ActionRestart}
	webDeployment := appsv1alpha1.PodOperationTarget{Owner: &appsv1alpha1.PodOperationOwner{Kind: "Deployment", Name: "web"}}
	web := appsv1alpha1.PodOperationTarget{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}

	It("restarts the pods of a Deployment in place, as many at a time as their rule permits", Label(mainStories), func(ctx context.Context) {
		const pods = 12
		p.rule(ctx, maxUnavailable("25%"))
		p.deployment(ctx, pods, nil)
		before, observer, ledger := p.list(ctx), observe(p), openLedger(p)
		began := time.Now()
		operation := p.operation(ctx, appsv1alpha1.PodOperationSpec{Target: webDeployment, Action: restart})
		Eventually(ctx, p.seeingOperation(operation)).WithTimeout(2 * patience).Should(haveEnded(appsv1alpha1.ReasonSucceeded, pods))

		Eventually(ctx, p.list).Should(HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle(), haveRestarted(1))))
		after := p.list(ctx)
		Expect(uids(after)).To(ConsistOf(uids(before)), "the pods stay")
		Expect(after).To(HaveEach(WithTransform(imageOf, HavePrefix("registry.example.com/web:v1@sha256:"))), "the digest is the same")
		Expect(observer.leastAvailable()).To(Equal(pods-pods/4), "the limit must be kept, and reached")
		Expect(p.operationEvents(ctx, operation)).To(ConsistOf("OperationStarted", "OperationEnded"))
		own := ledger.byOperator(audit.On("podoperations"), audit.InNamespace(p.namespace))
		Expect(len(own)).To(BeNumerically("<=", 5+int(time.Since(began).Seconds())), "start and end, finalizer, and one report a second")

		By("restarting them once more, with the digest alone")
		again := p.operation(ctx, appsv1alpha1.PodOperationSpec{Target: webDeployment, Action: restart})
		Eventually(ctx, p.seeingOperation(again)).WithTimeout(2 * patience).Should(haveEnded(appsv1alpha1.ReasonSucceeded, pods))
		Expect(p.list(ctx)).To(HaveEach(And(haveRestarted(2), WithTransform(imageOf, HavePrefix("registry.example.com/web@sha256:")))))
		Expect(p.list(ctx)).To(HaveEach(HaveField("Annotations", Not(HaveKey(recordOf(operation))))), "records of ended operations are removed")
	})

	It("updates images in order, up to its partition, and the others when the partition is lowered", func(ctx context.Context) {
		p.rule(ctx, maxUnavailable("1"))
		p.pods(ctx, 6, nil)
		operation := p.operation(ctx, appsv1alpha1.PodOperationSpec{
			Target: web, Order: appsv1alpha1.OrderReverseName, Partition: intOrString("4"),
			Action: updateTo("web", newImage),
		})
		Eventually(ctx, p.seeingOperation(operation)).Should(haveReason(appsv1alpha1.ReasonPartitioned))
		Consistently(ctx, p.updated).Should(ConsistOf("web-05", "web-04"))
		Expect(p.list(ctx)).To(HaveEach(expect.HaveNoLifecycle()))

		p.patch(ctx, operation, `{"spec":{"partition":"50%%"}}`)
		Eventually(ctx, p.updated).Should(ConsistOf("web-05", "web-04", "web-03"))
		p.patch(ctx, operation, `{"spec":{"partition":null}}`)
		Eventually(ctx, p.seeingOperation(operation)).Should(haveEnded(appsv1alpha1.ReasonSucceeded, 6))
		Expect(p.list(ctx)).To(HaveEach(WithTransform(imageOf, Equal(newImage))))
	})

	DescribeTable("that ends early undoes what it has not operated on, and leaves nothing on pods",
		func(ctx context.Context, end func(context.Context, *appsv1alpha1.PodOperation), reason string) {
			p.rule(ctx, maxUnavailable("2"))
			p.pods(ctx, 6, func(pod *corev1.Pod) { pod.Annotations = map[string]string{"test.podops.dev/start-delay": "2s"} })
			operation := p.operation(ctx, appsv1alpha1.PodOperationSpec{Target: web, Action: restart, DeadlineSeconds: new(int32(3600))})
			Eventually(ctx, p.list).Should(And(
				ContainElements(manyTimes(2, beAnnotated(recordOf(operation)))...), ContainElement(expect.BeWaiting(idOf(operation)))))
			end(ctx, operation)

			if reason == "" {
				Eventually(ctx, func(ctx context.Context) error {
					return p.admin.Get(ctx, client.ObjectKeyFromObject(operation), operation)
				}).Should(Satisfy(apierrors.IsNotFound))
			} else {
				Eventually(ctx, p.seeingOperation(operation)).Should(And(haveReason(reason), HaveField("Status.CompletionTime", Not(BeNil())), HaveField("Finalizers", BeEmpty())))
			}
			Eventually(ctx, p.list).Should(HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle())))
			restarted := slices.DeleteFunc(p.list(ctx), func(pod *corev1.Pod) bool { return restarts(pod) == 0 })
			Expect(len(restarted)).To(BeNumerically("<", 6))
			Consistently(ctx, p.list).Should(HaveEach(expect.HaveNoLifecycle()))
		},
		Entry("cancelled", func(ctx context.Context, operation *appsv1alpha1.PodOperation) {
			p.patch(ctx, operation, `{"spec":{"cancel":true}}`)
		}, appsv1alpha1.ReasonCancelled),
		Entry("past its deadline", func(ctx context.Context, operation *appsv1alpha1.PodOperation) {
			p.patch(ctx, operation, `{"spec":{"deadlineSeconds":1}}`)
		}, appsv1alpha1.ReasonDeadlineExceeded),
		Entry("deleted", func(ctx context.Context, operation *appsv1alpha1.PodOperation) {
			Expect(p.admin.Delete(ctx, operation)).To(Succeed())
		}, ""),
	)

	It("that is suspended withdraws the pods that wait, and continues when it is resumed", func(ctx context.Context) {
		p.rule(ctx, approved())
		p.pods(ctx, 3, nil)
		operation := p.operation(ctx, appsv1alpha1.PodOperationSpec{Target: web, Action: restart, Suspend: true})
		Eventually(ctx, p.seeingOperation(operation)).Should(haveReason(appsv1alpha1.ReasonSuspended))
		Expect(p.list(ctx)).To(HaveEach(expect.HaveNoLifecycle()))
		p.patch(ctx, operation, `{"spec":{"suspend":false}}`)
		Eventually(ctx, p.list).Should(HaveEach(expect.BeWaiting(idOf(operation))))
		p.patch(ctx, operation, `{"spec":{"suspend":true}}`)
		Eventually(ctx, p.list).Should(HaveEach(expect.HaveNoLifecycle()))
		Consistently(ctx, p.list).Should(HaveEach(expect.HaveNoLifecycle()))
		p.patch(ctx, operation, `{"spec":{"suspend":false,"ttlSecondsAfterFinished":0}}`)
		p.approve(ctx)
		By("deleting itself when it has ended")
		Eventually(ctx, func(ctx context.Context) error {
			return p.admin.Get(ctx, client.ObjectKeyFromObject(operation), operation)
		}).Should(Satisfy(apierrors.IsNotFound))
		Eventually(ctx, p.list).Should(HaveEach(And(haveRestarted(1), expect.BeAvailable(), expect.HaveNoLifecycle())))
	})

	It("evicts each pod of a Deployment once, within the PodDisruptionBudget", Label(mainStories), func(ctx context.Context) {
		p.deployment(ctx, 4, nil)
		p.disruptionBudget(ctx, "web", "1")
		before, observer := p.list(ctx), observe(p)
		operation := p.operation(ctx, appsv1alpha1.PodOperationSpec{Target: webDeployment, Action: appsv1alpha1.PodOperationAction{Type: appsv1alpha1.ActionEvict}})
		Eventually(ctx, p.seeingOperation(operation)).WithTimeout(3 * patience).Should(haveEnded(appsv1alpha1.ReasonSucceeded, 4))
		p.awaitAvailable(ctx, 4)
		after := p.list(ctx)
		Expect(uids(after)).NotTo(ContainElement(BeElementOf(uids(before))), "every pod is replaced")
		Expect(observer.leastAvailable()).To(BeNumerically(">=", 3))
		Consistently(ctx, func(ctx context.Context) ([]*corev1.Pod, error) { return p.list(ctx), nil }).
			Should(WithTransform(uids, ConsistOf(uids(after))), "replacements stay")
	})

	It("deletes the pods that it names, in the order of the list", func(ctx context.Context) {
		p.rule(ctx, maxUnavailable("1"))
		p.pods(ctx, 4, nil)
		operation := p.operation(ctx, appsv1alpha1.PodOperationSpec{
			Target: appsv1alpha1.PodOperationTarget{Names: []string{"web-03", "web-01", "absent"}},
			Action: appsv1alpha1.PodOperationAction{Type: appsv1alpha1.ActionDelete, GracePeriodSeconds: new(int64(1))},
		})
		Eventually(ctx, p.seeingOperation(operation)).Should(And(haveReason(appsv1alpha1.ReasonSucceeded), HaveField("Status", And(
			HaveField("CompletionTime", Not(BeNil())), HaveField("Total", int32(3)), HaveField("Succeeded", int32(2)), HaveField("Gone", int32(1)),
		))))
		Expect(names(p.list(ctx))).To(ConsistOf("web-00", "web-02"))
	})

	It("resizes pods in place", Label(mainStories), func(ctx context.Context) {
		p.rule(ctx, maxUnavailable("50%"))
		cpu := func(amount string) corev1.ResourceList {
			return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}
		}
		p.pods(ctx, 4, func(pod *corev1.Pod) { pod.Spec.Containers[0].Resources.Requests = cpu("10m") })
		operation := p.operation(ctx, appsv1alpha1.PodOperationSpec{Target: web, Action: appsv1alpha1.PodOperationAction{
			Type: appsv1alpha1.ActionResize, Resize: &appsv1alpha1.ResizeAction{Containers: []appsv1alpha1.ContainerResources{
				{Name: "web", Requests: &appsv1alpha1.ResizableResources{CPU: new(resource.MustParse("20m"))}},
			}},
		}})
		Eventually(ctx, p.seeingOperation(operation)).Should(haveEnded(appsv1alpha1.ReasonSucceeded, 4))
		Eventually(ctx, p.list).Should(HaveEach(And(haveRestarted(0), expect.BeAvailable())))
		for _, pod := range p.list(ctx) {
			Expect(pod.Status.ContainerStatuses[0].Resources.Requests.Cpu().String()).To(Equal("20m"))
		}
	})

	DescribeTable("that cannot be carried out stops, and leaves the pods in service",
		func(ctx context.Context, target appsv1alpha1.PodOperationTarget, action appsv1alpha1.PodOperationAction, reason, message string) {
			p.rule(ctx, maxUnavailable("1"))
			p.pods(ctx, 3, nil)
			operation := p.operation(ctx, appsv1alpha1.PodOperationSpec{Target: target, Action: action})
			Eventually(ctx, p.seeingOperation(operation)).Should(And(haveReason(reason), HaveField("Status.CompletionTime", Not(BeNil())),
				Satisfy(func(o *appsv1alpha1.PodOperation) bool {
					return meta.IsStatusConditionTrue(o.Status.Conditions, appsv1alpha1.ConditionStalled)
				})))
			Expect(fmt.Sprint(operation.Status)).To(ContainSubstring(message))
			Eventually(ctx, p.list).Should(HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle(), haveRestarted(0))))
			Expect(operation.Status.Failed).To(BeNumerically("<=", 1), "it stops at the first")
		},
		Entry("since it matches no pod", appsv1alpha1.PodOperationTarget{Owner: &appsv1alpha1.PodOperationOwner{Kind: "StatefulSet", Name: "other"}}, restart,
			appsv1alpha1.ReasonNoTargets, "names no running pod"),
		Entry("since a container is unknown", web,
			appsv1alpha1.PodOperationAction{Type: appsv1alpha1.ActionRestart, Restart: &appsv1alpha1.RestartAction{Containers: []string{"sidecar"}}},
			appsv1alpha1.ReasonPodsFailed, "the pod has no container sidecar"),
	)

	It("works beside another operation on the same pods", func(ctx context.Context) {
		p.rule(ctx, maxUnavailable("50%"))
		p.pods(ctx, 4, nil)
		var before []string
		for _, pod := range p.list(ctx) {
			before = append(before, imageID(pod))
		}
		one := p.operation(ctx, appsv1alpha1.PodOperationSpec{Target: web, Action: restart})
		two := p.operation(ctx, appsv1alpha1.PodOperationSpec{Target: web, Action: updateTo("web", newImage)})
		for _, operation := range []*appsv1alpha1.PodOperation{one, two} {
			Eventually(ctx, p.seeingOperation(operation)).WithTimeout(2 * patience).Should(haveEnded(appsv1alpha1.ReasonSucceeded, 4))
		}
		Eventually(ctx, p.list).Should(HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle())))
		Expect(p.list(ctx)).To(HaveEach(And(WithTransform(imageOf, HavePrefix(newImage)), WithTransform(imageID, Not(BeElementOf(before))))),
			"the restart must not put the old image back")
	})

	It("restarts a pod with the image of its spec, also while its kubelet replaces the container", func(ctx context.Context) {
		p.pods(ctx, 1, func(pod *corev1.Pod) { pod.Annotations = map[string]string{"test.podops.dev/start-delay": "5s"} })
		pod := p.list(ctx)[0]
		before := imageID(pod)
		update := fmt.Appendf(nil, `{"spec":{"containers":[{"name":"web","image":%q}]}}`, newImage)
		Expect(p.admin.Patch(ctx, pod, client.RawPatch(types.StrategicMergePatchType, update))).To(Succeed())
		operation := p.operation(ctx, appsv1alpha1.PodOperationSpec{Target: web, Action: restart})
		Eventually(ctx, p.seeingOperation(operation)).WithTimeout(2 * patience).Should(haveEnded(appsv1alpha1.ReasonSucceeded, 1))
		Expect(p.list(ctx)).To(HaveEach(And(WithTransform(imageOf, HavePrefix(newImage+"@")), WithTransform(imageID, Not(Equal(before))))))
	})

	DescribeTable("that fails its check fails while every pod serves", func(ctx context.Context, action appsv1alpha1.PodOperationAction, message string) {
		p.review(ctx, admissionregistrationv1.Update, admissionregistrationv1.Validation{
			Expression: "!object.spec.containers.exists(c, c.image.endsWith('denied'))", Message: "not this image",
		})
		p.pods(ctx, 3, nil)
		denied := client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"containers":[{"name":"web","image":"denied"}]}}`))
		Eventually(ctx, func(ctx context.Context) error { return p.admin.Patch(ctx, p.list(ctx)[0], denied, client.DryRunAll) }).
			Should(expect.BeRefused(422, "not this image"), "the API server compiles the policy")
		observer := observe(p)
		operation := p.operation(ctx, appsv1alpha1.PodOperationSpec{Target: web, Action: action})
		Eventually(ctx, p.seeingOperation(operation)).Should(HaveField("Status.Failed", int32(1)), "it stops at the first")
		Eventually(ctx, p.seeingOperation(operation)).Should(HaveField("Status.CompletionTime", Not(BeNil())))
		Expect(operation.Status.Pods).To(ContainElement(HaveField("Message", ContainSubstring(message))))
		Expect(observer.leastAvailable()).To(Equal(3))
	},
		Entry("for a container that does not exist", updateTo("wbe", newImage), "no container wbe"),
		Entry("where a policy of the cluster denies the image", updateTo("web", "registry.example.com/web:denied"), "not this image"),
		Entry("where it would change the QoS class", appsv1alpha1.PodOperationAction{
			Type: appsv1alpha1.ActionResize, Resize: &appsv1alpha1.ResizeAction{Containers: []appsv1alpha1.ContainerResources{
				{Name: "web", Requests: &appsv1alpha1.ResizableResources{CPU: new(resource.MustParse("20m"))}},
			}},
		}, "QOS"),
	)

	It("ends at once for pods that have the image", func(ctx context.Context) {
		p.pods(ctx, 3, nil)
		observer := observe(p)
		operation := p.operation(ctx, appsv1alpha1.PodOperationSpec{Target: web, Action: updateTo("web", imageOf(p.list(ctx)[0]))})
		Eventually(ctx, p.seeingOperation(operation)).Should(haveEnded(appsv1alpha1.ReasonSucceeded, 3))
		Expect(p.list(ctx)).To(HaveEach(And(expect.HaveNoLifecycle(), haveRestarted(0))))
		Expect(observer.leastAvailable()).To(Equal(3))
	})

	It("is queued while as many as a namespace may have are in progress, and starts when another ends", func(ctx context.Context) {
		p.rule(ctx, approved())
		p.pods(ctx, 1, nil)
		active := make([]*appsv1alpha1.PodOperation, appsv1alpha1.MaxActivePodOperations)
		for i := range active {
			active[i] = p.operation(ctx, appsv1alpha1.PodOperationSpec{Target: web, Action: restart})
		}
		for _, operation := range active {
			Eventually(ctx, p.seeingOperation(operation)).Should(HaveField("Status.StartTime", Not(BeNil())))
		}
		queued := p.operation(ctx, appsv1alpha1.PodOperationSpec{Target: web, Action: restart})
		Eventually(ctx, p.seeingOperation(queued)).Should(haveReason(appsv1alpha1.ReasonQueued))
		Consistently(ctx, p.seeingOperation(queued)).Should(And(haveReason(appsv1alpha1.ReasonQueued), HaveField("Status.StartTime", BeNil())))
		Expect(p.list(ctx)).To(HaveEach(HaveField("Labels", Not(HaveKey(appsv1alpha1.OperatingLabelPrefix+"/"+idOf(queued))))))

		By("cancelling all others")
		for _, operation := range active {
			p.patch(ctx, operation, `{"spec":{"cancel":true}}`)
		}
		Eventually(ctx, p.seeingOperation(queued)).Should(HaveField("Status.StartTime", Not(BeNil())))
		p.label(ctx, p.list(ctx)[0], approvedLabel, "true")
		Eventually(ctx, p.seeingOperation(queued)).Should(haveEnded(appsv1alpha1.ReasonSucceeded, 1))
		Eventually(ctx, p.list).Should(HaveEach(And(haveRestarted(1), expect.BeAvailable(), expect.HaveNoLifecycle())))
	})

	It("continues with another manager, and restarts no pod twice", func(ctx context.Context) {
		const pods = 10
		p.rule(ctx, maxUnavailable("2"))
		p.deployment(ctx, pods, func(d *appsv1.Deployment) {
			d.Spec.Template.Annotations = map[string]string{"test.podops.dev/start-delay": "1s"}
		})
		operation := p.operation(ctx, appsv1alpha1.PodOperationSpec{Target: webDeployment, Action: restart})
		Eventually(ctx, p.list).Should(ContainElement(haveRestarted(1)))
		managers.stopAll()
		managers.start(ctx)
		Eventually(ctx, p.seeingOperation(operation)).WithTimeout(3 * patience).Should(haveEnded(appsv1alpha1.ReasonSucceeded, pods))
		Eventually(ctx, p.list).Should(HaveEach(And(haveRestarted(1), expect.BeAvailable())))
	})
})

// operation creates a PodOperation.
func (p scenario) operation(ctx context.Context, spec appsv1alpha1.PodOperationSpec) *appsv1alpha1.PodOperation {
	GinkgoHelper()
	operation := &appsv1alpha1.PodOperation{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, GenerateName: "operation-"}, Spec: spec}
	Expect(p.admin.Create(ctx, operation)).To(Succeed())
	return operation
}

func imageID(pod *corev1.Pod) string { return pod.Status.ContainerStatuses[0].ImageID }

// seeingOperation returns a function that reads an operation into the given object.
func (p scenario) seeingOperation(operation *appsv1alpha1.PodOperation) func(context.Context) (*appsv1alpha1.PodOperation, error) {
	return func(ctx context.Context) (*appsv1alpha1.PodOperation, error) {
		return operation, p.admin.Get(ctx, client.ObjectKeyFromObject(operation), operation)
	}
}

// operationEvents returns the reasons of the events on an operation.
func (p scenario) operationEvents(ctx context.Context, operation *appsv1alpha1.PodOperation) []string {
	GinkgoHelper()
	var found []string
	Eventually(ctx, func(ctx context.Context) []string {
		found = nil
		for _, event := range p.events(ctx) {
			if event.InvolvedObject.UID == operation.UID {
				found = append(found, event.Reason)
			}
		}
		return found
	}).Should(ContainElement("OperationEnded"))
	return found
}

// updated returns the names of the pods with the new image.
func (p scenario) updated(ctx context.Context) []string {
	return names(slices.DeleteFunc(p.list(ctx), func(pod *corev1.Pod) bool { return imageOf(pod) != newImage }))
}

func names(pods []*corev1.Pod) []string {
	var all []string
	for _, pod := range pods {
		all = append(all, pod.Name)
	}
	return all
}

func idOf(operation *appsv1alpha1.PodOperation) string {
	return appsv1alpha1.PodOperationIDPrefix + string(operation.UID)
}

func recordOf(operation *appsv1alpha1.PodOperation) string {
	return appsv1alpha1.PodOperationAnnotationPrefix + "/" + string(operation.UID)
}

// beAnnotated matches pods with an annotation.
func beAnnotated(key string) OmegaMatcher { return HaveField("Annotations", HaveKey(key)) }

func restarts(pod *corev1.Pod) int32 { return pod.Status.ContainerStatuses[0].RestartCount }

func haveRestarted(times int32) OmegaMatcher { return WithTransform(restarts, Equal(times)) }

func haveReason(reason string) OmegaMatcher {
	return WithTransform(func(operation *appsv1alpha1.PodOperation) string {
		if ready := meta.FindStatusCondition(operation.Status.Conditions, appsv1alpha1.ConditionReady); ready != nil {
			return ready.Reason
		}
		return ""
	}, Equal(reason))
}

// haveEnded matches an operation that has ended with a reason, after it has operated on pods.
func haveEnded(reason string, pods int32) OmegaMatcher {
	return And(haveReason(reason), HaveField("Status", And(
		HaveField("CompletionTime", Not(BeNil())), HaveField("Succeeded", pods), HaveField("Total", pods))))
}

// updateTo updates the image of a container.
func updateTo(container, image string) appsv1alpha1.PodOperationAction {
	return appsv1alpha1.PodOperationAction{Type: appsv1alpha1.ActionUpdateImages, UpdateImages: &appsv1alpha1.UpdateImagesAction{
		Containers: []appsv1alpha1.ContainerImage{{Name: container, Image: image}},
	}}
}
