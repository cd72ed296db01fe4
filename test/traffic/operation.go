package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// The lifecycle of the operation controller.
const (
	operationID   = "traffic"
	operationType = "upgrade"

	operatingLabel = appsv1alpha1.OperatingLabelPrefix + "/" + operationID
	typeLabel      = appsv1alpha1.OperationTypeLabelPrefix + "/" + operationID
	operateLabel   = appsv1alpha1.OperateLabelPrefix + "/" + operationID
)

// operation is the next step of an operation controller with a pod.
type operation string

const (
	nothing operation = ""
	begin   operation = "begin"  // set the operating labels
	upgrade operation = "update" // the image, in place
	finish  operation = "finish" // say that it is done
)

// nextWith returns the next step for a pod with PodOps: begin, wait for operate, write the
// image, wait until it runs, end.
func nextWith(pod *corev1.Pod, image string) operation {
	_, operating := pod.Labels[operatingLabel]
	_, allowed := pod.Labels[operateLabel]
	switch {
	case pod.DeletionTimestamp != nil:
		return nothing
	case operating && runsImage(pod, image):
		return finish
	case operating && allowed && pod.Spec.Containers[0].Image != image:
		return upgrade
	case !operating && pod.Spec.Containers[0].Image != image:
		return begin
	default:
		return nothing
	}
}

// nextWithout returns the next step for each pod without PodOps: the number of unavailable
// pods stays within atOnce. Pods that were updated and are not ready yet count as
// unavailable.
func nextWithout(pods []corev1.Pod, image string, atOnce int) map[string]operation {
	away := 0
	for i := range pods {
		written := pods[i].Spec.Containers[0].Image == image
		if back := runsImage(&pods[i], image) && ready(&pods[i]); written && !back {
			away++
		}
	}
	steps := map[string]operation{}
	for i := range pods {
		if away < atOnce && pods[i].DeletionTimestamp == nil && pods[i].Spec.Containers[0].Image != image {
			steps[pods[i].Name] = upgrade
			away++
		}
	}
	return steps
}

func runsImage(pod *corev1.Pod, image string) bool {
	statuses := pod.Status.ContainerStatuses
	return pod.Spec.Containers[0].Image == image && len(statuses) > 0 && statuses[0].Image == image && statuses[0].State.Running != nil
}

// do runs one step. Repeating a step is safe.
func do(ctx context.Context, admin client.Client, pod *corev1.Pod, step operation, image string, now time.Time) error {
	var patch string
	switch step {
	case begin:
		patch = fmt.Sprintf(`{"metadata":{"labels":{%q:%q,%q:%q}}}`, operatingLabel, strconv.FormatInt(now.UnixNano(), 10), typeLabel, operationType)
	case upgrade:
		patch = fmt.Sprintf(`{"spec":{"containers":[{"name":%q,"image":%q}]}}`, pod.Spec.Containers[0].Name, image)
	case finish:
		patch = fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, operatingLabel)
	case nothing:
		return nil
	}
	target := &corev1.Pod{}
	target.Namespace, target.Name = pod.Namespace, pod.Name
	if err := admin.Patch(ctx, target, client.RawPatch(types.StrategicMergePatchType, []byte(patch))); err != nil {
		return fmt.Errorf("%s of pod %s: %w", step, pod.Name, err)
	}
	return nil
}

// operate runs one round over all pods, for either side.
func (g *scenarioRun) operate(ctx context.Context, pods []corev1.Pod) error {
	steps := map[string]operation{}
	if g.side == withPodOps {
		for i := range pods {
			steps[pods[i].Name] = nextWith(&pods[i], secondImage)
		}
	} else {
		steps = nextWithout(pods, secondImage, max(1, g.scenario.replicas/4))
	}
	var errs []error
	for i := range pods {
		errs = append(errs, do(ctx, g.harness.admin, &pods[i], steps[pods[i].Name], secondImage, time.Now()))
	}
	return errors.Join(errs...)
}
