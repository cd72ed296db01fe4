package podopslifecycle_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/podopslifecycle"
)

// server stores pods as an API server with the admission of PodOps does.
type server struct {
	client.WithWatch

	// patches counts the requests, with conflicts.
	patches int

	// beforePatch runs before each patch is stored: writes of other clients.
	beforePatch func(s *server)
}

func newServer(t testing.TB, pods ...client.Object) *server {
	t.Helper()
	s := &server{}
	s.WithWatch = fake.NewClientBuilder().WithObjects(pods...).WithInterceptorFuncs(interceptor.Funcs{Patch: s.patch}).Build()
	return s
}

func (s *server) patch(
	ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption,
) error {
	s.patches++
	if before := s.beforePatch; before != nil {
		s.beforePatch = nil
		before(s)
	}
	old := &corev1.Pod{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(obj), old); err != nil {
		return err
	}
	if err := c.Patch(ctx, obj, patch, opts...); err != nil {
		return err
	}
	requested := &corev1.Pod{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(obj), requested); err != nil {
		return err
	}
	admission := lifecycle.AdmitUpdate(lifecycle.NewPodFacts(old), lifecycle.NewPodFacts(requested), false, lifecycle.Options{}, time.Now())
	if change := admission.Change; !change.IsEmpty() {
		obj.SetLabels(change.Apply(requested.Labels))
		return c.Update(ctx, obj)
	}
	return nil
}

// annotate writes the pod as another client does, which makes the views of all others stale.
func (s *server) annotate(t testing.TB, name string) {
	t.Helper()
	pod := s.pod(t, name)
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "example.com/at", time.Now().String())
	if err := s.Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// grant sets the labels as PodOps does when rules have passed and traffic is off.
func (s *server) grant(t testing.TB, name, id, operationType string, at time.Time) {
	t.Helper()
	pod := s.pod(t, name)
	value := stampOf(at)
	delete(pod.Labels, appsv1alpha1.PreCheckLabelPrefix+"/"+id)
	pod.Labels[appsv1alpha1.PreCheckedLabelPrefix+"/"+id] = value
	pod.Labels[appsv1alpha1.OperationPermissionLabelPrefix+"/"+operationType] = value
	pod.Labels[appsv1alpha1.OperateLabelPrefix+"/"+id] = value
	if err := s.Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

func (s *server) pod(t testing.TB, name string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := s.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// adapter is an operation controller.
type adapter struct {
	id            string
	operationType podopslifecycle.OperationType
	multi         bool
	whenBegin     podopslifecycle.UpdateFunc
	whenFinish    podopslifecycle.UpdateFunc
}

func (a adapter) GetID() string                          { return a.id }
func (a adapter) GetType() podopslifecycle.OperationType { return a.operationType }
func (a adapter) AllowMultiType() bool                   { return a.multi }

func (a adapter) WhenBegin(pod client.Object) (bool, error) {
	if a.whenBegin == nil {
		return false, nil
	}
	return a.whenBegin(pod)
}

func (a adapter) WhenFinish(pod client.Object) (bool, error) {
	if a.whenFinish == nil {
		return false, nil
	}
	return a.whenFinish(pod)
}

func controlled(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, UID: "first",
		Labels: map[string]string{appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue},
	}}
}
