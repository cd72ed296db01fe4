package deferreddelete

import (
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/podops-dev/podops/pkg/core/replicasetscale"
)

// WantOfJob returns whether a Job wants one of its pods deleted: it does while it is to have none, and none of them while
// it is to have as many as there are, or more. Which ones it deletes of too many only its requests show. job is nil if it
// does not exist.
func WantOfJob(job *batchv1.Job, pod *corev1.Pod) Want {
	if job == nil || !isLive(job, pod) {
		return Unwanted
	}
	switch desired := DesiredOfJob(job); {
	case desired == 0:
		return Wanted
	case desired < int(job.Status.Active):
		return WantUnknown
	default:
		return Unwanted
	}
}

// Untracks reports whether an update removes the finalizer by which a Job counts the result of a pod. Its controller
// does so right before it deletes a pod that runs: if only the delete waited, the result of the pod would be lost.
func Untracks(before, after *corev1.Pod) bool {
	return OwnerKind(before) == kindJob && slices.Contains(before.Finalizers, batchv1.JobTrackingFinalizer) &&
		!slices.Contains(after.Finalizers, batchv1.JobTrackingFinalizer)
}

// Counts reports whether a Job counts the results of its pods. One that has ended or is being deleted does not, and its
// controller removes the finalizer of every pod. job is nil if it does not exist.
func Counts(job *batchv1.Job) bool {
	return job != nil && job.DeletionTimestamp == nil && !hasEnded(&job.Status)
}

// DesiredOfJob returns the number of pods that the controller of a Job keeps at a time: parallelism,
// bounded by the completions that are left; 0 for a Job that is suspended or has ended. Without
// completions no further pod is created once a pod has succeeded, and the active pods count.
func DesiredOfJob(job *batchv1.Job) int {
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
		return replicasetscale.Replicas(spec.Parallelism)
	}
	left := int(*spec.Completions) - succeeded
	if status.FailedIndexes != nil {
		left -= indexesIn(*status.FailedIndexes)
	}
	return max(0, min(replicasetscale.Replicas(spec.Parallelism), left))
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
