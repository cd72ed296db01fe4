package imageupdater_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/podops-dev/podops/examples/imageupdater"
	"github.com/podops-dev/podops/test/builders"
)

const (
	v1 = "registry.example.com/web:v1"
	v2 = "registry.example.com/web:v2"

	operating = "operating.podopslifecycle.kusionstack.io/imageupdater"
	operate   = "operate.podopslifecycle.kusionstack.io/imageupdater"
)

// pod is the builder of a pod with the image v1 in its spec, of which the containers run with an image.
func pod(running string) *builders.PodBuilder {
	return builders.MakePod("web").Available().Image(running)
}

func TestReconcile(t *testing.T) {
	for name, tc := range map[string]struct {
		pod       *corev1.Pod
		image     string
		operating bool
	}{
		"no image is requested": {
			pod: runs(pod(v1).Obj(), v1), image: v1,
		},
		"another image begins the operation": {
			pod: runs(pod(v1).Annotation(imageupdater.ImageAnnotation, v2).Obj(), v1), image: v1, operating: true,
		},
		"before operate nothing changes": {
			pod: runs(pod(v1).Annotation(imageupdater.ImageAnnotation, v2).Preparing("imageupdater", "update").Obj(), v1), image: v1, operating: true,
		},
		"operate allows the update": {
			pod: runs(pod(v1).Annotation(imageupdater.ImageAnnotation, v2).Allowed("imageupdater", "update").Obj(), v1), image: v2, operating: true,
		},
		"the operation lasts until the container runs": {
			pod: runs(pod(v2).Annotation(imageupdater.ImageAnnotation, v2).Allowed("imageupdater", "update").Obj(), v1), image: v2, operating: true,
		},
		"then it finishes": {
			pod: runs(pod(v2).Annotation(imageupdater.ImageAnnotation, v2).Allowed("imageupdater", "update").Obj(), v2), image: v2,
		},
		"a return to the image that still runs replaces the image that was set": {
			pod: runs(pod(v2).Annotation(imageupdater.ImageAnnotation, v1).Allowed("imageupdater", "update").Obj(), v1), image: v1, operating: true,
		},
		"a request that is withdrawn is cancelled": {
			pod: runs(pod(v1).Preparing("imageupdater", "update").Obj(), v1), image: v1,
		},
		"another update has its turn first": {
			pod: runs(pod(v1).Annotation(imageupdater.ImageAnnotation, v2).Allowed("other", "update").Obj(), v1), image: v1,
		},
		"a pod that is not under PodOps is no concern": {
			pod: runs(pod(v1).Uncontrolled().Annotation(imageupdater.ImageAnnotation, v2).Obj(), v1), image: v1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithObjects(tc.pod).Build()
			r := &imageupdater.Reconciler{Client: c}
			key := client.ObjectKeyFromObject(tc.pod)
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
				t.Fatal(err)
			}
			got := &corev1.Pod{}
			if err := c.Get(t.Context(), key, got); err != nil {
				t.Fatal(err)
			}
			_, isOperating := got.Labels[operating]
			if got.Spec.Containers[0].Image != tc.image || isOperating != tc.operating {
				t.Errorf("image %s, operating %t, want %s, %t", got.Spec.Containers[0].Image, isOperating, tc.image, tc.operating)
			}
			if got.Labels[operate] != tc.pod.Labels[operate] {
				t.Errorf("label %s became %q", operate, got.Labels[operate])
			}
		})
	}
}

func TestAPodThatIsGone(t *testing.T) {
	r := &imageupdater.Reconciler{Client: fake.NewClientBuilder().Build()}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "default", Name: "web"}}); err != nil {
		t.Error(err)
	}
}

// runs makes the only container of the pod run with an image.
func runs(pod *corev1.Pod, image string) *corev1.Pod {
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: pod.Spec.Containers[0].Name, Image: image, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}
	return pod
}
