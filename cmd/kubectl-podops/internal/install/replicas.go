package install

import (
	"context"
	"fmt"
	"io"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// awaitReplicas waits until the Deployment has replaced its replicas, and prints each new reason for which it has not.
func awaitReplicas(ctx context.Context, c client.Client, applied *unstructured.Unstructured, out io.Writer) error {
	last := ""
	err := wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		deployment := &appsv1.Deployment{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(applied), deployment); err != nil {
			return false, err
		}
		missing := unreplaced(deployment)
		if missing != "" && missing != last {
			_, _ = fmt.Fprintln(out, "  not yet:", missing)
		}
		last = missing
		return missing == "", nil
	})
	if err != nil {
		return fmt.Errorf("the replicas of the manager are not replaced, and the webhook configurations are unchanged: %s: %w", last, err)
	}
	return nil
}

// unreplaced returns which replicas the Deployment has yet to replace, empty when it has replaced all of them.
func unreplaced(deployment *appsv1.Deployment) string {
	wanted, status := ptr.Deref(deployment.Spec.Replicas, 1), deployment.Status
	switch {
	case status.ObservedGeneration < deployment.Generation:
		return "the Deployment controller has not observed the Deployment"
	case status.UpdatedReplicas < wanted:
		return fmt.Sprintf("%d of %d replicas are of the new version", status.UpdatedReplicas, wanted)
	case status.Replicas > status.UpdatedReplicas:
		return fmt.Sprintf("replicas of the old version that are left: %d", status.Replicas-status.UpdatedReplicas)
	case status.AvailableReplicas < wanted:
		return fmt.Sprintf("%d of %d replicas are available", status.AvailableReplicas, wanted)
	}
	return ""
}
