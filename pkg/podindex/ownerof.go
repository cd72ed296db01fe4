package podindex

import (
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/podstate"
)

// OwnerOf returns a workload as an owner of pods, and false for an object that does not count as an owner:
// another kind, or a Job without pods under PodOps.
func OwnerOf(object metav1.Object) (owner Owner, counts bool) {
	owner = Owner{
		UID: object.GetUID(), Namespace: object.GetNamespace(), Name: object.GetName(),
		Terminating: object.GetDeletionTimestamp() != nil, Created: object.GetCreationTimestamp().Time,
	}
	if controller := metav1.GetControllerOf(object); controller != nil {
		owner.Controller = controller.UID
		owner.Above = OwnerName{APIVersion: controller.APIVersion, Kind: controller.Kind, Name: controller.Name}
	}
	switch o := object.(type) {
	case *appsv1.ReplicaSet:
		// A revision that is missing or not a number counts as the oldest.
		owner.Revision, _ = strconv.ParseInt(o.Annotations[appsv1alpha1.DeploymentRevisionAnnotationKey], 10, 64)
		owner.MinReady = seconds(o.Spec.MinReadySeconds)
		owner.Kind, owner.Desired, owner.TemplateLabels = kindReplicaSet, replicas(o.Spec.Replicas), o.Spec.Template.Labels
	case *appsv1.Deployment:
		owner.Kind, owner.Desired, owner.TemplateLabels = "Deployment", replicas(o.Spec.Replicas), o.Spec.Template.Labels
		if owner.Recreates = o.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType; owner.Recreates {
			owner.SkipRules = podstate.SkipRules(o.Spec.Template.Annotations)
		}
	case *appsv1.StatefulSet:
		owner.MinReady = seconds(o.Spec.MinReadySeconds)
		owner.UpdateRevision, owner.CurrentRevision = o.Status.UpdateRevision, o.Status.CurrentRevision
		owner.Kind, owner.Desired, owner.TemplateLabels = "StatefulSet", replicas(o.Spec.Replicas), o.Spec.Template.Labels
	case *appsv1.DaemonSet:
		// Before the controller has counted nodes for the first time, the number in the status is 0.
		owner.MinReady = seconds(o.Spec.MinReadySeconds)
		owner.Kind, owner.TemplateLabels = "DaemonSet", o.Spec.Template.Labels
		owner.Desired, owner.Uncounted = int(o.Status.DesiredNumberScheduled), o.Status.ObservedGeneration == 0
	case *batchv1.Job:
		if !appsv1alpha1.IsControlled(o.Spec.Template.Labels) {
			return Owner{}, false // most Jobs have no pod in the index
		}
		owner.Kind, owner.Desired, owner.TemplateLabels = "Job", desiredOfJob(o), o.Spec.Template.Labels
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

// desiredOfJob returns the number of pods that the controller of a Job keeps at a time: parallelism,
// bounded by the completions that are left; 0 for a Job that is suspended or has ended. Without
// completions no further pod is created once a pod has succeeded, and the active pods count.
func desiredOfJob(job *batchv1.Job) int {
	spec, status := &job.Spec, &job.Status
	if spec.Suspend != nil && *spec.Suspend || hasEnded(status) {
		return 0
	}
	succeeded := int(status.Succeeded)
	if uncounted := status.UncountedTerminatedPods; uncounted != nil {
		succeeded += len(uncounted.Succeeded)
	}
	if spec.Completions == nil {
		if succeeded > 0 {
			return int(status.Active)
		}
		return replicas(spec.Parallelism)
	}
	left := int(*spec.Completions) - succeeded
	if status.FailedIndexes != nil {
		left -= indexesIn(*status.FailedIndexes)
	}
	return max(0, min(replicas(spec.Parallelism), left))
}

// hasEnded reports whether the controller of a Job creates no more pods.
func hasEnded(status *batchv1.JobStatus) bool {
	for _, condition := range status.Conditions {
		switch condition.Type {
		case batchv1.JobComplete, batchv1.JobFailed, batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet:
			if condition.Status == corev1.ConditionTrue {
				return true
			}
		case batchv1.JobSuspended: // its controller creates pods again once it is resumed
		}
	}
	return false
}

// indexesIn counts the indexes of a list such as "1,3-5,7". Parts that are not numbers count nothing.
func indexesIn(list string) int {
	total := 0
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, errFrom := strconv.Atoi(first)
		to, errTo := strconv.Atoi(last)
		if errFrom == nil && errTo == nil && to >= from {
			total += to - from + 1
		}
	}
	return total
}
