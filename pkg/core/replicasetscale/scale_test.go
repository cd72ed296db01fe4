package replicasetscale

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

func newSet(replicas int32, annotations map[string]string) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}, Spec: appsv1.ReplicaSetSpec{Replicas: &replicas}}
}

func revision(value string) map[string]string {
	return map[string]string{appsv1alpha1.DeploymentRevisionAnnotationKey: value}
}

func TestKept(t *testing.T) {
	for name, tc := range map[string]struct{ replicas, requested, ungranted, want int }{
		"no pod may go":                     {12, 9, 12, 12},
		"two pods may go":                   {12, 9, 10, 10},
		"as many pods may go":               {12, 9, 9, 9},
		"more pods may go":                  {12, 9, 3, 9},
		"pods are still to be created":      {12, 6, 8, 8},
		"there are more pods than replicas": {12, 9, 14, 12},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Kept(tc.replicas, tc.requested, tc.ungranted); got != tc.want {
				t.Errorf("kept %d, want %d", got, tc.want)
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
		"an old ReplicaSet in a rollout":         {rolling, set(4, "1", "4"), set(3, "1", "4"), true},
		"an old ReplicaSet, with its Deployment": {rolling, set(4, "1", "4"), set(2, "1", "2"), false},
		"the newest ReplicaSet":                  {rolling, set(4, "2", "4"), set(3, "2", "4"), false},

		"a ReplicaSet alone":                        {nil, set(4, "", ""), set(3, "", ""), false},
		"an old ReplicaSet of a new strategy":       {recreating(rolling.DeepCopy()), set(4, "1", "4"), set(0, "1", "4"), false},
		"a ReplicaSet that is no longer the newest": {rolling, set(4, "1", "2"), set(3, "1", "2"), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := IsRolloutStep(tc.deployment, tc.old, tc.requested); got != tc.want {
				t.Errorf("a step of a rollout: %v, want %v", got, tc.want)
			}
		})
	}
}

func TestOthers(t *testing.T) {
	terminating := runs("c", func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: epoch} })
	ended := runs("c", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })
	two := []*corev1.Pod{runs("a"), runs("b")}
	for name, tc := range map[string]struct {
		template map[string]string
		pods     []*corev1.Pod
		total    int32 // of the status
		labelled int32
		want     int
	}{
		"all pods are controlled":                    {controlled, two, 2, 2, 0},
		"the status is behind a new pod":             {controlled, append(two, runs("c")), 2, 2, 0},
		"the status still counts a pod that is gone": {controlled, two, 3, 3, 0},
		"and a terminating pod":                      {controlled, append(two, terminating), 3, 3, 0},
		"one pod is not controlled":                  {controlled, two, 3, 2, 1},
		"and a third has failed":                     {controlled, append(two, ended), 3, 2, 1},
		"and a third is terminating":                 {controlled, append(two, terminating), 3, 2, 1},
		"and the status is behind a terminating pod": {nil, append(two, terminating), 3, 3, 0},
		"a pod lacks another label of the template":  {controlled, append(two, runs("c")), 3, 2, 0},
		"the template does not have the label":       {nil, two, 3, 3, 1},
	} {
		t.Run(name, func(t *testing.T) {
			set := newSet(3, nil)
			set.Spec.Template.Labels = tc.template
			set.Status.Replicas, set.Status.FullyLabeledReplicas = tc.total, tc.labelled
			if got := Others(set, tc.pods); got != tc.want {
				t.Errorf("%d other pods, want %d", got, tc.want)
			}
		})
	}
}

var controlled = map[string]string{appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue}

func recreating(deployment *appsv1.Deployment) *appsv1.Deployment {
	deployment.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	return deployment
}

// revised is a ReplicaSet of a Deployment: spec.replicas, and how many of its pods are available.
func revised(number, replicas, available int32) *appsv1.ReplicaSet {
	set := newSet(replicas, revision(fmt.Sprint(number)))
	set.UID, set.CreationTimestamp = types.UID(fmt.Sprint(number)), metav1.NewTime(epoch.Add(time.Duration(number)*time.Second))
	set.Status.Replicas, set.Status.AvailableReplicas = max(replicas, available), available
	return set
}

// rolls is a Deployment of a revision.
func rolls(replicas int32, newest, surge, unavailable string) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: revision(newest)}}
	d.Spec.Replicas = &replicas
	d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{
		MaxSurge: new(intstr.Parse(surge)), MaxUnavailable: new(intstr.Parse(unavailable)),
	}}
	return d
}

// TestTarget compares with the steps of the controller of Deployments.
func TestTarget(t *testing.T) {
	sets := func(sets ...*appsv1.ReplicaSet) []*appsv1.ReplicaSet { return sets }
	paused, ending := rolls(4, "2", "1", "0"), rolls(4, "2", "1", "1")
	paused.Spec.Paused, ending.DeletionTimestamp = true, &metav1.Time{Time: epoch}
	complete := revised(2, 4, 4)
	metav1.SetMetaDataAnnotation(&complete.ObjectMeta, deploymentReplicasAnnotationKey, "4")
	for name, tc := range map[string]struct {
		deployment *appsv1.Deployment
		sets       []*appsv1.ReplicaSet
		want       []int
	}{
		"as many pods go as new ones are available":                {rolls(4, "2", "1", "0"), sets(revised(1, 4, 4), revised(2, 1, 1)), []int{3, 1}},
		"none while the new ones start":                            {rolls(4, "2", "1", "0"), sets(revised(1, 4, 4), revised(2, 1, 0)), []int{4, 1}},
		"none once new ones are not available any more":            {rolls(4, "2", "2", "0"), sets(revised(1, 4, 2), revised(2, 2, 0)), []int{4, 2}},
		"a pod that is out of service for it does not count twice": {rolls(4, "2", "1", "0"), sets(revised(1, 4, 3), revised(2, 1, 1)), []int{3, 1}},
		"maxUnavailable of a percentage is rounded down":           {rolls(5, "2", "0", "50%"), sets(revised(1, 5, 5), revised(2, 0, 0)), []int{3, 0}},
		"without either, one pod":                                  {rolls(4, "2", "0%", "0%"), sets(revised(1, 4, 4), revised(2, 0, 0)), []int{3, 0}},
		"pods that are unavailable go first":                       {rolls(4, "3", "1", "1"), sets(revised(1, 2, 2), revised(2, 2, 1), revised(3, 1, 0)), []int{2, 1, 1}},
		"then those of the oldest ReplicaSet":                      {rolls(4, "3", "1", "1"), sets(revised(2, 2, 2), revised(1, 2, 2), revised(3, 1, 1)), []int{2, 0, 1}},
		"all in the end":                                           {rolls(4, "2", "1", "0"), sets(revised(1, 1, 1), revised(2, 4, 4)), []int{0, 4}},
		"a rollout that was undone wants all":                      {rolls(4, "3", "1", "0"), sets(revised(3, 4, 4), revised(2, 1, 1)), []int{4, 0}},
		"undone, before the Deployment has the revision":           {rolls(4, "2", "1", "0"), sets(revised(3, 4, 4), revised(2, 1, 1)), []int{4, 0}},
		"none while it is paused":                                  {paused, sets(revised(1, 4, 4), revised(2, 1, 1)), []int{4, 1}},
		"all while it is paused, once the new ReplicaSet has all":  {paused, sets(revised(1, 1, 1), complete), []int{0, 4}},
		"not before that has the number of the Deployment":         {paused, sets(revised(1, 1, 1), revised(2, 4, 4)), []int{1, 4}},
		"none while it is deleted":                                 {ending, sets(revised(1, 4, 4), revised(2, 1, 1)), []int{4, 1}},
		"none of the strategy Recreate":                            {recreating(rolls(4, "2", "1", "0")), sets(revised(1, 4, 4), revised(2, 0, 0)), []int{4, 0}},
		"none before the new ReplicaSet is there":                  {rolls(4, "2", "1", "1"), sets(revised(1, 4, 4)), []int{4}},
		"the status is behind a step":                              {rolls(4, "2", "1", "1"), sets(revised(1, 2, 4), revised(2, 1, 1)), []int{2, 1}},
		"none of a Deployment that was scaled out":                 {rolls(8, "2", "1", "0"), sets(revised(1, 4, 4), revised(2, 1, 1)), []int{4, 1}},

		"pods that the new one has beyond its replicas do not count":        {rolls(3, "2", "1", "0"), sets(revised(1, 2, 4), revised(2, 2, 3)), []int{1, 2}},
		"a surplus of the new one stays while the old ones are unavailable": {rolls(2, "3", "1", "0"), sets(revised(2, 2, 0), revised(3, 1, 2)), []int{1, 2}},
		"a surplus of the new one goes while enough old ones are available": {rolls(2, "3", "1", "0"), sets(revised(2, 2, 2), revised(3, 1, 2)), []int{1, 1}},
		"a surplus of an old ReplicaSet goes":                               {rolls(2, "3", "1", "0"), sets(revised(2, 1, 2), revised(3, 2, 0)), []int{1, 2}},
		"a ReplicaSet alone":                                                {nil, sets(revised(1, 4, 4)), []int{4}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []int
			for _, set := range tc.sets {
				got = append(got, (Workload{Deployment: tc.deployment, Sets: tc.sets}).Target(set))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("targets (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTargetCountsPodsThatAreOutOfService has one old pod too many by the statuses, which say that both new pods are available.
func TestTargetCountsPodsThatAreOutOfService(t *testing.T) {
	old, newest := revised(1, 3, 2), revised(2, 2, 2)
	gateFalse := corev1.PodCondition{Type: appsv1alpha1.ServiceReadyGate, Status: corev1.ConditionFalse}
	closed, ended, deleted := runs("b"), runs("b", unready), runs("b", unready)
	closed.Status.Conditions = append(closed.Status.Conditions, gateFalse)
	ended.Status.Phase, deleted.DeletionTimestamp = corev1.PodFailed, &metav1.Time{Time: epoch}
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want int
	}{
		"a pod that serves":                        {runs("b"), 1},
		"a pod that is not Ready":                  {runs("b", unready), 2},
		"a gate that the kubelet has not seen yet": {closed, 2},
		"a pod that does not count has ended":      {ended, 1},
		"a pod that the status may still count":    {deleted, 2},
	} {
		t.Run(name, func(t *testing.T) {
			tc.pod.OwnerReferences = []metav1.OwnerReference{{UID: newest.UID, Controller: new(true)}}
			workload := Workload{Deployment: rolls(4, "2", "1", "1"), Sets: []*appsv1.ReplicaSet{old, newest}, Pods: []*corev1.Pod{tc.pod}}
			if got := workload.Target(old); got != tc.want {
				t.Errorf("target %d, want %d", got, tc.want)
			}
		})
	}
}

// TestTargetDoesNotCountPodsThatHaveLeft has a status that still counts a pod as available which the cache shows as terminating, or no more.
func TestTargetDoesNotCountPodsThatHaveLeft(t *testing.T) {
	old, newest := revised(1, 3, 2), revised(2, 2, 2)
	newest.Spec.Template.Labels = map[string]string{appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue}
	newest.Status.FullyLabeledReplicas = newest.Status.Replicas
	leaving, stays := runs("a"), runs("b")
	leaving.DeletionTimestamp = &metav1.Time{Time: epoch}
	for name, tc := range map[string]struct {
		pods []*corev1.Pod
		want int
	}{
		"both serve":     {[]*corev1.Pod{runs("a"), stays}, 1},
		"one is leaving": {[]*corev1.Pod{leaving, stays}, 2},
		"one has left":   {[]*corev1.Pod{stays}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			for _, pod := range tc.pods {
				pod.OwnerReferences = []metav1.OwnerReference{{UID: newest.UID, Controller: new(true)}}
			}
			workload := Workload{Deployment: rolls(4, "2", "1", "1"), Sets: []*appsv1.ReplicaSet{old, newest}, Pods: tc.pods}
			if got := workload.Target(old); got != tc.want {
				t.Errorf("target %d, want %d", got, tc.want)
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
