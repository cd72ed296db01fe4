package podrelease

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// admission lists the objects of config/webhook that act on requests, bindings before the
// policies that they bind.
func admission() []client.Object {
	named := func(object client.Object, name string) client.Object {
		object.SetName(name)
		return object
	}
	objects := []client.Object{
		named(&admissionregistrationv1.MutatingWebhookConfiguration{}, "podops-mutating"),
		named(&admissionregistrationv1.ValidatingWebhookConfiguration{}, "podops-validating"),
	}
	for _, name := range []string{
		"podops-pod-status", "podops-pod-binding", "podops-manager", "podops-manager-replicasets",
		"podops-manager-poddisruptionbudgets", "podops-manager-eviction", "podops-podoperations", "podops-manager-podoperations", "podops-unguarded-updates",
		"podops-podoperationapprovals", "podops-template-authors", "podops-freezes", "podops-cluster-freezes",
	} {
		objects = append(objects,
			named(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, name),
			named(&admissionregistrationv1.ValidatingAdmissionPolicy{}, name))
	}
	return objects
}

func (r *runner) removeAdmission(ctx context.Context) error {
	for _, object := range admission() {
		if err := client.IgnoreNotFound(r.client.Delete(ctx, object)); err != nil {
			return fmt.Errorf("deleting %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

// stopManager scales the Deployment of the manager to 0 and waits until its pods are deleted.
// A cluster without that Deployment has nothing to stop.
func (r *runner) stopManager(ctx context.Context) error {
	var deployment appsv1.Deployment
	err := r.client.Get(ctx, client.ObjectKey{Namespace: r.options.Namespace, Name: appsv1alpha1.ManagerName}, &deployment)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	if err != nil {
		return fmt.Errorf("reading the selector of deployment %s: %w", appsv1alpha1.ManagerName, err)
	}
	scale := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))
	if err := r.client.Patch(ctx, &deployment, scale); err != nil {
		return fmt.Errorf("scaling deployment %s to 0: %w", appsv1alpha1.ManagerName, err)
	}
	err = wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		running, err := r.managerPods(ctx, selector)
		return len(running) == 0, err
	})
	if err != nil && errors.Is(err, ctx.Err()) {
		return fmt.Errorf("its pods do not end: %w", err)
	}
	return err
}

func (r *runner) managerPods(ctx context.Context, selector labels.Selector) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := r.client.List(ctx, &pods, client.InNamespace(r.options.Namespace), client.MatchingLabelsSelector{Selector: selector})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of the manager: %w", err)
	}
	return pods.Items, nil
}
