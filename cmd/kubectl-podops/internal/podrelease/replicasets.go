package podrelease

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/replicasetscale"
)

// releaseReplicaSets removes the annotations of PodOps from ReplicaSets, and wakes the controller of Deployments for
// each rollout of controlled pods that is not complete: it lowers old ReplicaSets as far as it needs.
func (r *runner) releaseReplicaSets(ctx context.Context) error {
	rolling, err := r.rolling(ctx)
	if err != nil {
		return err
	}
	err = r.eachPage(ctx, &appsv1.ReplicaSetList{}, func(page client.ObjectList) error {
		for i := range page.(*appsv1.ReplicaSetList).Items {
			set := &page.(*appsv1.ReplicaSetList).Items[i]
			controller := metav1.GetControllerOfNoCopy(set)
			kept := controller != nil && rolling[controller.UID] && replicasetscale.Replicas(set.Spec.Replicas) > 0
			if !kept && !replicasetscale.HasAnnotations(set) {
				continue
			}
			if err := client.IgnoreNotFound(r.releaseReplicaSet(ctx, set, kept)); err != nil {
				return fmt.Errorf("ReplicaSet %s: %w", client.ObjectKeyFromObject(set), err)
			}
			r.report.ReplicaSets++
		}
		return nil
	})
	r.progress()
	return err
}

// rolling returns the Deployments of controlled pods that have pods of an earlier revision.
func (r *runner) rolling(ctx context.Context) (map[types.UID]bool, error) {
	rolling := map[types.UID]bool{}
	err := r.eachPage(ctx, &appsv1.DeploymentList{}, func(page client.ObjectList) error {
		for _, deployment := range page.(*appsv1.DeploymentList).Items {
			if appsv1alpha1.IsControlled(deployment.Spec.Template.Labels) && deployment.Status.UpdatedReplicas < deployment.Status.Replicas {
				rolling[deployment.UID] = true
			}
		}
		return nil
	})
	return rolling, err
}

// releaseReplicaSet removes the annotations of PodOps. With wakes it changes one before, so that the ReplicaSet changes.
func (r *runner) releaseReplicaSet(ctx context.Context, set *appsv1.ReplicaSet, wakes bool) error {
	if wakes {
		woken := map[string]any{appsv1alpha1.WokenAnnotationKey: time.Now().UTC().Format(time.RFC3339Nano)}
		if err := r.annotate(ctx, set, woken); err != nil {
			return err
		}
	}
	removed := map[string]any{}
	for _, key := range replicasetscale.Annotations() {
		removed[key] = nil
	}
	return r.annotate(ctx, set, removed)
}

func (r *runner) annotate(ctx context.Context, set *appsv1.ReplicaSet, annotations map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": set.UID, "annotations": annotations}})
	if err != nil {
		return fmt.Errorf("encoding the annotations of a ReplicaSet: %w", err)
	}
	return r.client.Patch(ctx, set, client.RawPatch(types.MergePatchType, patch))
}
