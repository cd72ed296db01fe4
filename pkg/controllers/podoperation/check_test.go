package podoperation

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/podoperation"
	"github.com/podops-dev/podops/test/builders"
)

// TestTheActionIsCheckedBeforeAPodGoesOffTraffic updates the image of web-0, and answers the dry run.
func TestTheActionIsCheckedBeforeAPodGoesOffTraffic(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	denial := func(policy string) error {
		return apierrors.NewForbidden(pods, "web-0", errors.New("ValidatingAdmissionPolicy '"+policy+"' with binding 'x' denied request: no"))
	}
	for sentence, tc := range map[string]struct {
		image  string // empty: main:v2
		dryRun error

		begins  bool
		state   appsv1alpha1.PodOperationState
		message string // a part of it
	}{
		"the lifecycle begins when the API server would store the change": {begins: true, state: appsv1alpha1.PodPreparing},
		"a denial fails the operation":                                    {dryRun: denial("images"), state: appsv1alpha1.PodFailed, message: "'images'"},
		"a policy of PodOps that demands an operation denies nothing":     {dryRun: denial("podops-unguarded-updates"), begins: true, state: appsv1alpha1.PodPreparing},
		"a webhook without dry runs denies nothing": {
			dryRun: apierrors.NewBadRequest("admission webhook \"x\" does not support dry run"), begins: true, state: appsv1alpha1.PodPreparing,
		},
		"the pod waits while a webhook fails": {
			dryRun: apierrors.NewInternalError(errors.New("failed calling webhook")), state: appsv1alpha1.PodWaiting, message: "failed calling webhook",
		},
		"nothing happens to a pod that has the image": {image: "main:v1", dryRun: errors.New("unexpected"), state: appsv1alpha1.PodSucceeded},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newFixture(t)
			image := tc.image
			if image == "" {
				image = "main:v2"
			}
			w.update(image, tc.dryRun)
			for range 3 {
				w.reconcile()
				w.clock.SetTime(w.clock.Now().Add(2 * statusPace))
			}
			_, operation := w.reconcile()
			pod := &corev1.Pod{}
			if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "web-0"}, pod); err != nil {
				t.Fatal(err)
			}
			if _, begun := pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+podoperation.ID("op")]; begun != tc.begins {
				t.Errorf("the lifecycle began: %t, want %t", begun, tc.begins)
			}
			if pod.Spec.Containers[0].Image != "main:v1" {
				t.Errorf("the pod has the image %s before it may be operated on", pod.Spec.Containers[0].Image)
			}
			if tc.state == appsv1alpha1.PodSucceeded {
				if operation.Status.Succeeded != 1 || operation.Status.CompletionTime == nil {
					t.Errorf("the operation is %+v", operation.Status)
				}
				return
			}
			if len(operation.Status.Pods) != 1 || operation.Status.Pods[0].State != tc.state || !strings.Contains(operation.Status.Pods[0].Message, tc.message) {
				t.Errorf("the pods of the operation are %+v, want one %s with %q", operation.Status.Pods, tc.state, tc.message)
			}
		})
	}
}

// update makes the operation update the image of web-0. Its dry runs are answered with an error, or by
// the client.
func (w *fixture) update(image string, dryRun error) {
	w.t.Helper()
	pod := builders.MakePod("web-0").Obj()
	pod.Spec.Containers[0].Image = "main:v1"
	operation := &appsv1alpha1.PodOperation{}
	key := client.ObjectKey{Namespace: "default", Name: "evict"}
	if err := w.client.Get(w.t.Context(), key, operation); err != nil {
		w.t.Fatal(err)
	}
	operation.Spec.Target.Names = []string{"web-0"}
	operation.Spec.Action = appsv1alpha1.PodOperationAction{Type: appsv1alpha1.ActionUpdateImages, UpdateImages: &appsv1alpha1.UpdateImagesAction{
		Containers: []appsv1alpha1.ContainerImage{{Name: "main", Image: image}},
	}}
	for _, object := range []client.Object{pod, operation} {
		if err := w.client.Update(w.t.Context(), object); err != nil {
			w.t.Fatal(err)
		}
	}
	answering := interceptor.NewClient(w.client, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
			options := client.PatchOptions{}
			options.ApplyOptions(opts)
			if len(options.DryRun) > 0 && dryRun != nil {
				return dryRun
			}
			return c.Patch(ctx, object, patch, opts...)
		},
	})
	w.reconciler = New(answering, answering, w.recorder, w.clock)
}
