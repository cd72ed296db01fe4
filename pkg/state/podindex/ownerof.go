package podindex

import (
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/approval"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/core/replicasetscale"
)

// NewOwner returns a workload as an owner of pods, and false for an object that does not count as an owner:
// another kind, or a Job without pods under PodOps.
func NewOwner(object metav1.Object) (owner Owner, counts bool) {
	owner = Owner{
		UID: object.GetUID(), Namespace: object.GetNamespace(), Name: object.GetName(),
		Terminating: object.GetDeletionTimestamp() != nil, Created: object.GetCreationTimestamp().Time, Surges: deferreddelete.Surges(object),
		Template: approval.Stamped(object), Processed: true,
	}
	owner.Author = approval.Author(object.GetAnnotations(), owner.Template)
	if controller := metav1.GetControllerOf(object); controller != nil {
		owner.Controller = controller.UID
		owner.Above = OwnerName{APIVersion: controller.APIVersion, Kind: controller.Kind, Name: controller.Name}
	}
	switch o := object.(type) {
	case *appsv1.ReplicaSet:
		// A revision that is missing or not a number counts as the oldest.
		owner.Revision, _ = strconv.ParseInt(o.Annotations[appsv1alpha1.DeploymentRevisionAnnotationKey], 10, 64)
		owner.MinReady, owner.Observed = seconds(o.Spec.MinReadySeconds), int(o.Status.Replicas)
		owner.Kind, owner.Desired, owner.TemplateLabels = kindReplicaSet, replicas(o.Spec.Replicas), o.Spec.Template.Labels
		owner.Unlabeled = owner.Observed
		if replicasetscale.IsControlled(o) {
			owner.Unlabeled -= int(o.Status.FullyLabeledReplicas)
		}
	case *appsv1.Deployment:
		owner.Paused = o.Spec.Paused
		owner.Kind, owner.Desired, owner.TemplateLabels = kindDeployment, replicas(o.Spec.Replicas), o.Spec.Template.Labels
		if owner.Recreates = o.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType; owner.Recreates {
			owner.SkipRules = podstate.SkipRules(o.Spec.Template.Annotations)
		}
	case *appsv1.StatefulSet:
		owner.Replaces, owner.Progress = o, deferreddelete.Progress(o)
		owner.Processed = o.Status.ObservedGeneration >= o.Generation
		owner.MinReady = seconds(o.Spec.MinReadySeconds)
		owner.UpdateRevision, owner.CurrentRevision = o.Status.UpdateRevision, o.Status.CurrentRevision
		owner.Kind, owner.Desired, owner.TemplateLabels = kindStatefulSet, replicas(o.Spec.Replicas), o.Spec.Template.Labels
	case *appsv1.DaemonSet:
		// Before the controller has counted nodes for the first time, the number in the status is 0.
		owner.Replaces, owner.Progress = o, deferreddelete.Progress(o)
		owner.Processed = o.Status.ObservedGeneration >= o.Generation
		owner.MinReady = seconds(o.Spec.MinReadySeconds)
		owner.Kind, owner.TemplateLabels = kindDaemonSet, o.Spec.Template.Labels
		owner.Desired, owner.Uncounted = int(o.Status.DesiredNumberScheduled), o.Status.ObservedGeneration == 0
	case *batchv1.Job:
		if !appsv1alpha1.IsControlled(o.Spec.Template.Labels) {
			return Owner{}, false // most Jobs have no pod in the index
		}
		owner.Paused = ptr.Deref(o.Spec.Suspend, false)
		owner.Kind, owner.Desired, owner.TemplateLabels = "Job", deferreddelete.DesiredOfJob(o), o.Spec.Template.Labels
	default:
		return Owner{}, false
	}
	return owner, true
}

func seconds(number int32) time.Duration { return time.Duration(number) * time.Second }

// replicas returns the number of replicas, with the default of the API server.
func replicas(wanted *int32) int {
	if wanted == nil {
		return 1
	}
	return int(*wanted)
}
