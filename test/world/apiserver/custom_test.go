package apiserver

import (
	"context"
	"io/fs"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/config"
)

// definitions returns the definitions of the custom resources of PodOps.
func definitions(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	names := must[[]string](t)(fs.Glob(config.Manifests, "crd/bases/*.yaml"))
	var found []*apiextensionsv1.CustomResourceDefinition
	for _, name := range names {
		d := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(must[[]byte](t)(fs.ReadFile(config.Manifests, name)), d); err != nil {
			t.Fatal(err)
		}
		found = append(found, d)
	}
	return found
}

func TestCustomResourcesInACache(t *testing.T) {
	world(t, Options{Definitions: definitions(t)}, func(t *testing.T, s *Server) {
		ctx, cancel := context.WithCancel(t.Context())
		scheme := runtime.NewScheme()
		for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
			if err := add(scheme); err != nil {
				t.Fatal(err)
			}
		}
		c := must[ctrlclient.Client](t)(ctrlclient.New(s.Config("user"), ctrlclient.Options{Scheme: scheme}))
		reader := must[cache.Cache](t)(cache.New(s.Config("manager"), cache.Options{Scheme: scheme}))
		done := make(chan error, 1)
		go func() { done <- reader.Start(ctx) }()

		operation := &v1alpha1.PodOperation{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default"}}
		operation.Spec.Target.Names = []string{"p"}
		operation.Spec.Action.Type = v1alpha1.ActionDelete
		if err := c.Create(ctx, operation); err != nil {
			t.Fatal(err)
		}
		invalid := operation.DeepCopy()
		invalid.ObjectMeta, invalid.Spec.Action.Type = metav1.ObjectMeta{Name: "b", Namespace: "default"}, "-"
		if err := c.Create(ctx, invalid); !apierrors.IsInvalid(err) {
			t.Errorf("got error %v for an object that the schema forbids", err)
		}
		list := &v1alpha1.PodOperationList{}
		if err := reader.List(ctx, list); err != nil || len(list.Items) != 1 {
			t.Errorf("the cache has %d objects, error %v", len(list.Items), err)
		}
		if err := reader.List(ctx, &corev1.PodList{}); err != nil {
			t.Error(err)
		}
		crds := &metav1.PartialObjectMetadataList{}
		crds.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinitionList"))
		if err := c.List(ctx, crds); err != nil || len(crds.Items) == 0 {
			t.Errorf("got %d definitions, error %v", len(crds.Items), err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// decision is an Admission that adds a label and refuses a name.
type decision struct{ seen []string }

func (d *decision) Mutate(_ context.Context, r *Request) error {
	d.seen = append(d.seen, "mutate "+string(r.Operation)+" "+r.Kind.Kind)
	if pod, ok := r.Object.(*corev1.Pod); ok {
		pod = pod.DeepCopy()
		metav1.SetMetaDataLabel(&pod.ObjectMeta, "added", "true")
		r.Object = pod
	}
	if operation, ok := r.Object.(*v1alpha1.PodOperation); ok {
		operation = operation.DeepCopy()
		metav1.SetMetaDataLabel(&operation.ObjectMeta, "added", "true")
		r.Object = operation
	}
	return nil
}

func (d *decision) Validate(_ context.Context, r *Request) error {
	d.seen = append(d.seen, "validate "+string(r.Operation)+" "+r.Kind.Kind)
	if r.Name == "refused" && r.Operation == "DELETE" {
		return apierrors.NewTooManyRequests("not now", 7)
	}
	return nil
}

func TestAdmission(t *testing.T) {
	d := &decision{}
	world(t, Options{Admission: d, Definitions: definitions(t)}, func(t *testing.T, s *Server) {
		d.seen = nil
		ctx := t.Context()
		pods := client(t, s, "user").CoreV1().Pods("default")
		created := must[*corev1.Pod](t)(pods.Create(ctx, pod("refused", nil), metav1.CreateOptions{}))
		if created.Labels["added"] != "true" {
			t.Errorf("got labels %v", created.Labels)
		}
		config := s.Config("user")
		config.QPS = -1
		status := refused(t, client(t, s, "user").CoreV1().RESTClient().Delete().Namespace("default").Resource("pods").
			Name("refused").MaxRetries(0).Do(ctx).Error(), http.StatusTooManyRequests)
		if status.ErrStatus.Details.RetryAfterSeconds != 7 {
			t.Errorf("got details %+v", status.ErrStatus.Details)
		}
		want := []string{"mutate CREATE Pod", "validate CREATE Pod", "mutate DELETE Pod", "validate DELETE Pod"}
		if len(d.seen) != len(want) {
			t.Errorf("admission saw %v", d.seen)
		}

		scheme := runtime.NewScheme()
		if err := v1alpha1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		c := must[ctrlclient.Client](t)(ctrlclient.New(config, ctrlclient.Options{Scheme: scheme}))
		operation := &v1alpha1.PodOperation{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default"}}
		operation.Spec.Target.Names = []string{"p"}
		operation.Spec.Action.Type = v1alpha1.ActionDelete
		if err := c.Create(ctx, operation); err != nil || operation.Labels["added"] != "true" {
			t.Errorf("got labels %v, error %v", operation.Labels, err)
		}
	})
}
