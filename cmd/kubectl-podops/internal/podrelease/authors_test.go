package podrelease

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

func TestReleaseAuthors(t *testing.T) {
	named := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{appsv1alpha1.TemplateAuthorAnnotationKey: "a carol", "note": "x"}}
	}
	var patched []string
	r := intercepted(t, interceptor.Funcs{Patch: func(
		ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption,
	) error {
		if _, left := object.GetAnnotations()[appsv1alpha1.TemplateAuthorAnnotationKey]; left || len(object.GetAnnotations()) != 1 {
			t.Errorf("%s gets the annotations %v", object.GetName(), object.GetAnnotations())
		}
		patched = append(patched, object.GetName())
		return c.Patch(ctx, object, patch, options...)
	}},
		&appsv1.Deployment{ObjectMeta: named("web")}, &appsv1.ReplicaSet{ObjectMeta: named("web-1")},
		&appsv1.StatefulSet{ObjectMeta: named("db")}, &appsv1.DaemonSet{ObjectMeta: named("agent")},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other", Annotations: map[string]string{"note": "x"}}},
	)
	if err := r.releaseAuthors(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"web", "web-1", "db", "agent"}, patched); diff != "" {
		t.Errorf("patched workloads (-want +got):\n%s", diff)
	}
}
