// Package builders builds test objects by chained methods.
package builders

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Epoch is the default time of a builder.
var Epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Stamp returns the label value of a time: Unix nanoseconds.
func Stamp(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

// PodBuilder builds one pod. Its methods change the builder and return it.
type PodBuilder struct {
	pod      *corev1.Pod
	expected map[string]string
}

// MakePod returns the builder of a controlled pod in the namespace default, with the
// readiness gate in its spec and one container. It has no conditions, as a new pod.
func MakePod(name string) *PodBuilder {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default",
			Name:      name,
			UID:       types.UID(name + "-uid"),
			Labels:    map[string]string{appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue},
		},
		Spec: corev1.PodSpec{
			ReadinessGates: []corev1.PodReadinessGate{{ConditionType: appsv1alpha1.ServiceReadyGate}},
			Containers:     []corev1.Container{{Name: "main", Image: "registry.example.com/web:v1"}},
		},
	}
	return &PodBuilder{pod: pod, expected: map[string]string{}}
}

// Obj returns the pod. Every call returns a new pod.
func (b *PodBuilder) Obj() *corev1.Pod { return b.pod.DeepCopy() }

// Namespace sets the namespace.
func (b *PodBuilder) Namespace(namespace string) *PodBuilder {
	b.pod.Namespace = namespace
	return b
}

// UID sets the UID; the default follows from the name.
func (b *PodBuilder) UID(uid types.UID) *PodBuilder {
	b.pod.UID = uid
	return b
}

// Node binds the pod to a node.
func (b *PodBuilder) Node(name string) *PodBuilder {
	b.pod.Spec.NodeName = name
	return b
}

// OwnedBy makes an object the controller of the pod.
func (b *PodBuilder) OwnedBy(owner metav1.OwnerReference) *PodBuilder {
	controller := true
	owner.Controller = &controller
	b.pod.OwnerReferences = append(b.pod.OwnerReferences, owner)
	return b
}

// Label sets a label.
func (b *PodBuilder) Label(key, value string) *PodBuilder {
	b.pod.Labels[key] = value
	return b
}

// Annotation sets an annotation.
func (b *PodBuilder) Annotation(key, value string) *PodBuilder {
	if b.pod.Annotations == nil {
		b.pod.Annotations = map[string]string{}
	}
	b.pod.Annotations[key] = value
	return b
}

// Uncontrolled removes the control label.
func (b *PodBuilder) Uncontrolled() *PodBuilder {
	delete(b.pod.Labels, appsv1alpha1.ControlLabelKey)
	return b
}

// Finalizer adds finalizers.
func (b *PodBuilder) Finalizer(names ...string) *PodBuilder {
	b.pod.Finalizers = append(b.pod.Finalizers, names...)
	return b
}

// Expect records that an employer ("<Kind>/<namespace>/<name>") puts a finalizer on the pod
// when its traffic is on.
func (b *PodBuilder) Expect(employer, finalizer string) *PodBuilder {
	b.expected[employer] = finalizer
	value, err := json.Marshal(appsv1alpha1.AvailableConditions{ExpectedFinalizers: maps.Clone(b.expected)})
	if err != nil {
		panic(fmt.Sprintf("encoding strings: %v", err))
	}
	return b.Annotation(appsv1alpha1.AvailableConditionsAnnotationKey, string(value))
}

// Terminating sets the deletion timestamp. The API server keeps such a pod only while
// it has a finalizer.
func (b *PodBuilder) Terminating(at time.Time) *PodBuilder {
	b.pod.DeletionTimestamp = &metav1.Time{Time: at}
	return b
}

// Phase sets the phase of the pod.
func (b *PodBuilder) Phase(phase corev1.PodPhase) *PodBuilder {
	b.pod.Status.Phase = phase
	return b
}

// Restarts sets the number of restarts of the first container.
func (b *PodBuilder) Restarts(count int32) *PodBuilder {
	b.pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: b.pod.Spec.Containers[0].Name, RestartCount: count}}
	return b
}

// Image changes the image of the only container.
func (b *PodBuilder) Image(image string) *PodBuilder {
	b.pod.Spec.Containers[0].Image = image
	return b
}
