package podindex_test

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/state/podindex"
)

func TestDesiredOfAJob(t *testing.T) {
	ended := func(kind batchv1.JobConditionType) batchv1.JobStatus {
		return batchv1.JobStatus{Active: 1, Conditions: []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue}}}
	}
	for name, tc := range map[string]struct {
		spec   batchv1.JobSpec
		status batchv1.JobStatus
		want   int
	}{
		"of the defaults": {spec: batchv1.JobSpec{Completions: ptr.To[int32](1)}, want: 1},
		"parallelism below completions": {
			spec: batchv1.JobSpec{Parallelism: ptr.To[int32](3), Completions: ptr.To[int32](10)}, status: batchv1.JobStatus{Succeeded: 2}, want: 3,
		},
		"few completions are left": {
			spec: batchv1.JobSpec{Parallelism: ptr.To[int32](3), Completions: ptr.To[int32](10)}, status: batchv1.JobStatus{Succeeded: 8}, want: 2,
		},
		"pods have succeeded that are not yet in the number": {
			spec:   batchv1.JobSpec{Parallelism: ptr.To[int32](3), Completions: ptr.To[int32](10)},
			status: batchv1.JobStatus{Succeeded: 8, UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{Succeeded: []types.UID{"a"}}}, want: 1,
		},
		"indexes have failed": {
			spec:   batchv1.JobSpec{Parallelism: ptr.To[int32](9), Completions: ptr.To[int32](10)},
			status: batchv1.JobStatus{FailedIndexes: ptr.To("1,3-5,7")}, want: 5,
		},
		"a queue":               {spec: batchv1.JobSpec{Parallelism: ptr.To[int32](4)}, want: 4},
		"a queue that runs dry": {spec: batchv1.JobSpec{Parallelism: ptr.To[int32](4)}, status: batchv1.JobStatus{Succeeded: 1, Active: 2}, want: 2},
		"parallelism of 0":      {spec: batchv1.JobSpec{Parallelism: ptr.To[int32](0), Completions: ptr.To[int32](1)}},
		"suspended":             {spec: batchv1.JobSpec{Suspend: ptr.To(true), Completions: ptr.To[int32](1)}},
		"complete":              {spec: batchv1.JobSpec{Completions: ptr.To[int32](2)}, status: ended(batchv1.JobComplete)},
		"failed":                {spec: batchv1.JobSpec{Completions: ptr.To[int32](2)}, status: ended(batchv1.JobFailed)},
		"about to fail":         {spec: batchv1.JobSpec{Completions: ptr.To[int32](2)}, status: ended(batchv1.JobFailureTarget)},
	} {
		t.Run(name, func(t *testing.T) {
			job := &batchv1.Job{Spec: tc.spec, Status: tc.status}
			job.Spec.Template.Labels = map[string]string{appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue}
			if got, counts := podindex.NewOwner(job); !counts || got.Desired != tc.want {
				t.Errorf("got %d pods, want %d", got.Desired, tc.want)
			}
		})
	}
}

func TestFailedIndexesOfAJobAreNotDesired(t *testing.T) {
	for list, want := range map[string]int{"": 10, "3": 9, "1,3-5,7": 5, "0-9": 0, "x,2-y,5-3": 10} {
		job := &batchv1.Job{
			Spec:   batchv1.JobSpec{Parallelism: ptr.To[int32](10), Completions: ptr.To[int32](10)},
			Status: batchv1.JobStatus{FailedIndexes: &list},
		}
		job.Spec.Template.Labels = map[string]string{appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue}
		if got, _ := podindex.NewOwner(job); got.Desired != want {
			t.Errorf("%q: got %d, want %d", list, got.Desired, want)
		}
	}
}

func TestAJobWithoutPodsUnderPodOpsIsNoOwner(t *testing.T) {
	if _, counts := podindex.NewOwner(&batchv1.Job{}); counts {
		t.Error("the Job counts")
	}
}
