package podrelease

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/replicasetscale"
)

// releaseReplicaSets hands the scale-downs that were kept back to Kubernetes. The annotations are
// removed, which wakes the controller of Deployments: it lowers its ReplicaSets as far as it needs.
func (r *runner) releaseReplicaSets(ctx context.Context) error {
	err := r.eachPage(ctx, &appsv1.ReplicaSetList{}, func(page client.ObjectList) error {
		for i := range page.(*appsv1.ReplicaSetList).Items {
			set := &page.(*appsv1.ReplicaSetList).Items[i]
			if !replicasetscale.HasAnnotations(set) {
				continue
			}
			if err := client.IgnoreNotFound(r.releaseReplicaSet(ctx, set)); err != nil {
				return fmt.Errorf("ReplicaSet %s: %w", client.ObjectKeyFromObject(set), err)
			}
			r.report.ReplicaSets++
		}
		return nil
	})
	r.progress()
	return err
}

func (r *runner) releaseReplicaSet(ctx context.Context, set *appsv1.ReplicaSet) error {
	change := map[string]any{"metadata": map[string]any{"uid": set.UID, "annotations": map[string]any{
		appsv1alpha1.DesiredReplicasAnnotationKey: nil, appsv1alpha1.LowestReplicasAnnotationKey: nil,
	}}}
	patch, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encoding the ReplicaSet: %w", err)
	}
	return r.client.Patch(ctx, set, client.RawPatch(types.MergePatchType, patch))
}
