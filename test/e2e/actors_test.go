package e2e_test

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// metadata is a change of metadata by an actor: labels (nil removes one) and finalizers
// (nil leaves them unchanged).
type metadata struct {
	Labels     map[string]any `json:"labels,omitempty"`
	Finalizers *[]string      `json:"finalizers,omitempty"`
}

// wish is the change that an actor makes to one pod; the zero value changes nothing.
type wish struct {
	Metadata metadata `json:"metadata"`
	Image    string   `json:"-"`
}

// act runs an actor: it calls wants with each version of each pod, and patches the pod if
// it is still at that version, as a controller with a cache does. It runs until the
// scenario ends or stop is called.
func act(p scenario, wants func(*corev1.Pod) wish) (stop func()) {
	GinkgoHelper()
	list := &corev1.PodList{}
	return follow(p, list, func() []*corev1.Pod { return pointers(list.Items) }, func(kind watch.EventType, pod *corev1.Pod) {
		if kind == watch.Deleted {
			return
		}
		wanted := wants(pod)
		if wanted.Image == "" && wanted.Metadata.Labels == nil && wanted.Metadata.Finalizers == nil {
			return
		}
		// While no manager leads, no webhook answers.
		Eventually(func() error {
			err := p.admin.Patch(context.Background(), pod.DeepCopy(), client.RawPatch(types.MergePatchType, wanted.render(pod)))
			if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
				return nil // the next version is the next chance
			}
			return err
		}).Should(Succeed())
	})
}

func (w wish) render(pod *corev1.Pod) []byte {
	patch := map[string]any{"metadata": struct {
		metadata
		ResourceVersion string `json:"resourceVersion"`
	}{w.Metadata, pod.ResourceVersion}}
	if w.Image != "" {
		containers := slices.Clone(pod.Spec.Containers)
		containers[0].Image = w.Image
		patch["spec"] = map[string]any{"containers": containers}
	}
	text, err := json.Marshal(patch)
	Expect(err).NotTo(HaveOccurred())
	return text
}

// serviceController adds its protection finalizer to pods that are Ready, and removes it
// when they are no longer Ready.
type serviceController struct {
	employer string
}

// finalizer returns the finalizer that ResourceConsist adapters use for an employer.
func (s serviceController) finalizer() string {
	sum := md5.Sum([]byte(s.employer))
	return appsv1alpha1.ProtectionFinalizerPrefix + "/" + hex.EncodeToString(sum[:])[8:24]
}

// expected returns the annotation that announces the finalizer.
func (s serviceController) expected(namespace string) string {
	text, err := json.Marshal(appsv1alpha1.AvailableConditions{ExpectedFinalizers: map[string]string{
		"Service/" + namespace + "/" + s.employer: s.finalizer(),
	}})
	Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// announce records the expected finalizer on a new pod.
func (s serviceController) announce(pod *corev1.Pod) {
	pod.Annotations = map[string]string{appsv1alpha1.AvailableConditionsAnnotationKey: s.expected(pod.Namespace)}
}

func (s serviceController) wants(pod *corev1.Pod) wish {
	has := slices.Contains(pod.Finalizers, s.finalizer())
	serve := isReady(pod) && pod.DeletionTimestamp == nil
	switch {
	case serve && !has:
		return wish{Metadata: metadata{Finalizers: new(append(slices.Clone(pod.Finalizers), s.finalizer()))}}
	case !serve && has:
		rest := slices.DeleteFunc(slices.Clone(pod.Finalizers), func(name string) bool { return name == s.finalizer() })
		return wish{Metadata: metadata{Finalizers: &rest}}
	}
	return wish{}
}

// imageUpdater is an operation controller that updates the image of pods in place.
type imageUpdater struct {
	id    string
	image string
}

func (u imageUpdater) wants(pod *corev1.Pod) wish {
	_, operating := pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+u.id]
	_, allowed := pod.Labels[appsv1alpha1.OperateLabelPrefix+"/"+u.id]
	updated := pod.Spec.Containers[0].Image == u.image
	switch {
	case !operating && !updated:
		return wish{Metadata: metadata{Labels: beginLabels(u.id, "update")}}
	case allowed && !updated:
		return wish{Image: u.image}
	case allowed && runs(pod, u.image):
		return wish{Metadata: metadata{Labels: map[string]any{appsv1alpha1.OperatingLabelPrefix + "/" + u.id: nil}}}
	}
	return wish{}
}

// beginLabels returns the labels that begin an operation.
func beginLabels(id, operationType string) map[string]any {
	return map[string]any{
		appsv1alpha1.OperatingLabelPrefix + "/" + id:     strconv.FormatInt(time.Now().UnixNano(), 10),
		appsv1alpha1.OperationTypeLabelPrefix + "/" + id: operationType,
	}
}

// runs reports whether every container of the pod runs the image and is ready.
func runs(pod *corev1.Pod, image string) bool {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Image != image || !status.Ready {
			return false
		}
	}
	return len(pod.Status.ContainerStatuses) == len(pod.Spec.Containers)
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
