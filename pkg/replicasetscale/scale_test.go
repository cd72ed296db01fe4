package replicasetscale

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

func newSet(replicas int32, annotations map[string]string) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}, Spec: appsv1.ReplicaSetSpec{Replicas: &replicas}}
}

func desired(value string) map[string]string {
	return map[string]string{appsv1alpha1.DesiredReplicasAnnotationKey: value}
}

func revision(value string) map[string]string {
	return map[string]string{appsv1alpha1.DeploymentRevisionAnnotationKey: value}
}

func TestScaleOf(t *testing.T) {
	for name, tc := range map[string]struct {
		set  *appsv1.ReplicaSet
		want Scale
	}{
		"no annotation":                  {newSet(3, nil), Scale{Replicas: 3}},
		"a kept scale-down":              {newSet(3, desired("1")), Scale{Replicas: 3, Demand: new(1)}},
		"to zero":                        {newSet(3, desired("0")), Scale{Replicas: 3, Demand: new(0)}},
		"as many as there are":           {newSet(3, desired("3")), Scale{Replicas: 3}},
		"more than there are":            {newSet(3, desired("4")), Scale{Replicas: 3}},
		"a negative number":              {newSet(3, desired("-1")), Scale{Replicas: 3}},
		"no number":                      {newSet(3, desired("two")), Scale{Replicas: 3}},
		"a number beyond int32":          {newSet(3, desired("99999999999")), Scale{Replicas: 3}},
		"the default of the API server":  {&appsv1.ReplicaSet{}, Scale{Replicas: 1}},
		"the default, and a demand of 0": {&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Annotations: desired("0")}}, Scale{Replicas: 1, Demand: new(0)}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, ScaleOf(tc.set)); diff != "" {
				t.Errorf("scale (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRequest(t *testing.T) {
	for name, tc := range map[string]struct {
		scale                Scale
		requested, ungranted int
		want                 Scale
	}{
		"lower, and no pod may go":                  {Scale{Replicas: 12}, 9, 12, Scale{Replicas: 12, Demand: new(9)}},
		"lower, and two pods may go":                {Scale{Replicas: 12}, 9, 10, Scale{Replicas: 10, Demand: new(9)}},
		"lower, and as many pods may go":            {Scale{Replicas: 12}, 9, 9, Scale{Replicas: 9}},
		"lower, and more pods may go":               {Scale{Replicas: 12}, 9, 3, Scale{Replicas: 9}},
		"lower, while pods are still to be created": {Scale{Replicas: 12}, 6, 8, Scale{Replicas: 8, Demand: new(6)}},
		"lower, with more pods than replicas":       {Scale{Replicas: 12}, 9, 14, Scale{Replicas: 12, Demand: new(9)}},
		"raised: the demand is gone":                {Scale{Replicas: 12, Demand: new(9)}, 13, 12, Scale{Replicas: 13}},
		"unchanged: the demand stays":               {Scale{Replicas: 12, Demand: new(9)}, 12, 12, Scale{Replicas: 12, Demand: new(9)}},
		"less lower: the lowest counts":             {Scale{Replicas: 12, Demand: new(6)}, 9, 12, Scale{Replicas: 12, Demand: new(6)}},
		"a step towards the demand":                 {Scale{Replicas: 12, Demand: new(6)}, 10, 10, Scale{Replicas: 10, Demand: new(6)}},
		"the last step":                             {Scale{Replicas: 7, Demand: new(6)}, 6, 6, Scale{Replicas: 6}},
	} {
		t.Run(name, func(t *testing.T) {
			got := tc.scale.Request(tc.requested, tc.ungranted)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("scale (-want +got):\n%s", diff)
			}
			if again := got.Request(got.Replicas, tc.ungranted); !cmp.Equal(again, got) {
				t.Errorf("a request of the kept number changes it from %v to %v", got, again)
			}
		})
	}
}

func TestIsRolloutStep(t *testing.T) {
	rolling := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: revision("2")}}
	set := func(replicas int32, revision, scale string) *appsv1.ReplicaSet {
		return newSet(replicas, map[string]string{
			appsv1alpha1.DeploymentRevisionAnnotationKey: revision, deploymentReplicasAnnotationKey: scale,
		})
	}
	for name, tc := range map[string]struct {
		deployment     *appsv1.Deployment
		old, requested *appsv1.ReplicaSet
		want           bool
	}{
		"an old ReplicaSet in a rollout":            {rolling, set(4, "1", "4"), set(3, "1", "4"), true},
		"an old ReplicaSet, with its Deployment":    {rolling, set(4, "1", "4"), set(2, "1", "2"), false},
		"the newest ReplicaSet":                     {rolling, set(4, "2", "4"), set(3, "2", "4"), false},
		"a ReplicaSet alone":                        {nil, set(4, "", ""), set(3, "", ""), false},
		"an old ReplicaSet of a new strategy":       {recreating(rolling.DeepCopy()), set(4, "1", "4"), set(0, "1", "4"), false},
		"a ReplicaSet that is no longer the newest": {rolling, set(4, "1", "2"), set(3, "1", "2"), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (Workload{Deployment: tc.deployment}).IsRolloutStep(tc.old, tc.requested); got != tc.want {
				t.Errorf("a step of a rollout: %v, want %v", got, tc.want)
			}
		})
	}
}

func TestIsUniform(t *testing.T) {
	set := newSet(3, nil)
	set.Status.Replicas = 2
	terminating := runs("c", func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: epoch} })
	for name, tc := range map[string]struct {
		pods []*corev1.Pod
		want bool
	}{
		"all pods are controlled":                   {[]*corev1.Pod{runs("a"), runs("b")}, true},
		"the status is behind":                      {[]*corev1.Pod{runs("a"), runs("b"), runs("c")}, true},
		"one pod is not":                            {[]*corev1.Pod{runs("a")}, false},
		"the status still counts a terminating pod": {[]*corev1.Pod{runs("a"), terminating}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := IsUniform(set, tc.pods); got != tc.want {
				t.Errorf("uniform: %v, want %v", got, tc.want)
			}
		})
	}
}

func recreating(deployment *appsv1.Deployment) *appsv1.Deployment {
	deployment.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	return deployment
}

func TestDesired(t *testing.T) {
	deployment := func(replicas int32, newest string, paused bool) *appsv1.Deployment {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: revision(newest)}}
		d.Spec.Replicas, d.Spec.Paused = &replicas, paused
		d.Spec.Strategy = appsv1.DeploymentStrategy{
			Type:          appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: new(intstr.FromString("25%"))},
		}
		return d
	}
	kept := Scale{Replicas: 12, Demand: new(6)}
	for name, tc := range map[string]struct {
		scale    Scale
		own      string
		workload Workload
		want     int
	}{
		"no demand":                      {Scale{Replicas: 12}, "1", Workload{Deployment: deployment(6, "1", false)}, 12},
		"a ReplicaSet alone":             {kept, "", Workload{}, 12},
		"an old ReplicaSet in a rollout": {kept, "1", Workload{Deployment: deployment(12, "2", false)}, 6},
		"the newest one":                 {kept, "2", Workload{Deployment: deployment(6, "2", false)}, 12},
		"rolled back, before the Deployment has the revision": {
			kept, "3", Workload{Deployment: deployment(12, "2", false)}, 12,
		},
		"an old ReplicaSet, of the strategy Recreate by now": {
			kept, "1", Workload{Deployment: recreating(deployment(12, "2", false))}, 12,
		},
		"an old ReplicaSet, paused": {kept, "1", Workload{Deployment: deployment(12, "2", true), Total: 15}, 12},
		"an old ReplicaSet, paused and scaled in": {
			kept, "1", Workload{Deployment: deployment(6, "2", true), Total: 15}, 6,
		},
		"a ReplicaSet without a revision": {kept, "", Workload{Deployment: deployment(12, "2", false)}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			set := newSet(12, nil)
			if tc.own != "" {
				set.Annotations = revision(tc.own)
			}
			if got := tc.scale.Desired(set, tc.workload); got != tc.want {
				t.Errorf("desired %d, want %d", got, tc.want)
			}
		})
	}
}

func TestUnpinRestoresTheCostFromBeforeBegin(t *testing.T) {
	for name, tc := range map[string]struct {
		before, meanwhile string
		want              map[string]any
	}{
		"no cost":                 {before: "", want: map[string]any{corev1.PodDeletionCost: nil}},
		"a cost":                  {before: "-7", want: map[string]any{corev1.PodDeletionCost: "-7"}},
		"a cost that was changed": {before: "-7", meanwhile: "5", want: map[string]any{}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{}
			if tc.before != "" {
				pod.Annotations = map[string]string{corev1.PodDeletionCost: tc.before}
			}
			_, begun := Begin(pod, epoch)
			pod.Annotations = map[string]string{}
			for key, value := range begun {
				pod.Annotations[key] = value.(string)
			}
			if !IsBegun(pod) {
				t.Error("the deletion is not begun")
			}
			if _, again := Begin(pod, epoch); len(again) != 1 {
				t.Errorf("to begin again would record %v as the former cost", again)
			}
			if tc.meanwhile != "" {
				pod.Annotations[corev1.PodDeletionCost] = tc.meanwhile
			}
			tc.want[appsv1alpha1.PreviousDeletionCostAnnotationKey] = nil
			if got := Unpin(pod); !cmp.Equal(tc.want, got) {
				t.Errorf("annotations (-want +got):\n%s", cmp.Diff(tc.want, got))
			}
		})
	}
	if got := Unpin(&corev1.Pod{}); got != nil {
		t.Errorf("a pod that was not begun changes by %v", got)
	}
}

// A user may write the annotation with the former cost. The API server rejects a pod with a cost that is not a number.
func TestUnpinRestoresNoCostThatTheAPIServerRejects(t *testing.T) {
	for _, forged := range []string{"x", "", "+7", "007", "2147483648", "1.5", "-"} {
		pod := &corev1.Pod{}
		pod.Annotations = map[string]string{appsv1alpha1.PreviousDeletionCostAnnotationKey: forged, corev1.PodDeletionCost: grantedCost}
		want := map[string]any{appsv1alpha1.PreviousDeletionCostAnnotationKey: nil, corev1.PodDeletionCost: nil}
		if diff := cmp.Diff(want, Unpin(pod)); diff != "" {
			t.Errorf("former cost %q: annotations (-want +got):\n%s", forged, diff)
		}
	}
}
