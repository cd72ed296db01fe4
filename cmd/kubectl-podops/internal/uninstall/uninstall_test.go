package uninstall

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

const message = "could not list instances: storage is (re)initializing"

// definition returns a CustomResourceDefinition whose objects the API server could not delete.
func definition() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "podtransitionrules.apps.kusionstack.io", Finalizers: []string{apiextensionsv1.CustomResourceCleanupFinalizer}},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
			{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue},
			{Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, Reason: "InstanceDeletionFailed", Message: message},
		}},
	}
}

// untyped returns a key of the definition, as the manifests have it.
func untyped() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	object.SetName(definition().Name)
	return object
}

// removeFrom removes the definition from a server that calls woken when the definition changes.
func removeFrom(ctx context.Context, t *testing.T, woken func(client.WithWatch, client.Object) error) error {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(definition()).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			if err := c.Patch(ctx, object, patch, options...); err != nil {
				return err
			}
			return woken(c, object)
		},
	}).Build()
	return remove(ctx, c, []*unstructured.Unstructured{untyped()}, io.Discard)
}

func TestADefinitionWhoseDeletionFailedIsDeletedAgain(t *testing.T) {
	err := removeFrom(t.Context(), t, func(c client.WithWatch, object client.Object) error {
		object.SetFinalizers(nil)
		return c.Update(t.Context(), object)
	})
	if err != nil {
		t.Error(err)
	}
}

func TestATimeoutNamesTheFailureOfTheServer(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	tries := 0
	err := removeFrom(ctx, t, func(c client.WithWatch, object client.Object) error {
		if tries++; tries == 2 {
			stop()
		}
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), definition().Name+" ("+message+")") {
		t.Errorf("got %v", err)
	}
}

func TestFailure(t *testing.T) {
	for sentence, test := range map[string]struct {
		change func(*apiextensionsv1.CustomResourceDefinition)
		want   string
	}{
		"failed": {func(*apiextensionsv1.CustomResourceDefinition) {}, message},
		"in progress": {func(d *apiextensionsv1.CustomResourceDefinition) {
			d.Status.Conditions[1].Reason = "InstanceDeletionInProgress"
		}, ""},
		"without conditions": {func(d *apiextensionsv1.CustomResourceDefinition) { d.Status.Conditions = nil }, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			d := definition()
			test.change(d)
			object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
			if err != nil {
				t.Fatal(err)
			}
			if got := failure(&unstructured.Unstructured{Object: object}); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
