package podrelease

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// releaseAuthors removes the annotation with the author of the pod template from workloads: from Deployments before ReplicaSets, to
// which the controller of Deployments copies it.
func (r *runner) releaseAuthors(ctx context.Context) error {
	for _, list := range []client.ObjectList{
		&appsv1.DeploymentList{}, &appsv1.ReplicaSetList{}, &appsv1.StatefulSetList{}, &appsv1.DaemonSetList{},
	} {
		err := r.eachPage(ctx, list, func(page client.ObjectList) error {
			return meta.EachListItem(page, func(item runtime.Object) error {
				workload, ok := item.(client.Object)
				if !ok {
					return fmt.Errorf("an item of %T is no object", page)
				}
				_, err := r.change(ctx, workload, func() { delete(workload.GetAnnotations(), appsv1alpha1.TemplateAuthorAnnotationKey) })
				if err != nil {
					return fmt.Errorf("%T %s: %w", workload, client.ObjectKeyFromObject(workload), err)
				}
				return nil
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}
