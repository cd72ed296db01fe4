package offline_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/engine/evaluation/offline"
)

// served returns a pod of the rule that serves since a time, under a controller.
func served(name string, since time.Time, kind, controller string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"app": "cart"}}}
	if controller != "" {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: controller, UID: types.UID(controller), Controller: new(true)}}
	}
	return offline.Serving(pod, since)
}

// owning returns a StatefulSet of the pods of the rule.
func owning(name string, replicas, minReadySeconds int32, leader string) *appsv1.StatefulSet {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	if leader != "" {
		set.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: leader, UID: types.UID(leader), Controller: new(true)}}
	}
	set.Spec.Replicas, set.Spec.MinReadySeconds = &replicas, minReadySeconds
	set.Spec.Template.Labels = map[string]string{"app": "cart", appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue}
	return set
}

// TestGroupsArePermittedAsOne has four groups of a leader and two workers, whose leaders wait for their deletion.
func TestGroupsArePermittedAsOne(t *testing.T) {
	for name, tc := range map[string]struct {
		most   int
		broken bool // the first leader
		want   []string
	}{
		"one group at a time":                        {most: 3, want: []string{"Permitted", "Withheld NoRoom", "Withheld NoRoom", "Withheld NoRoom"}},
		"two groups":                                 {most: 6, want: []string{"Permitted", "Permitted", "Withheld NoRoom", "Withheld NoRoom"}},
		"no group under a lower bound":               {most: 2, want: []string{"Withheld NoRoom", "Withheld NoRoom", "Withheld NoRoom", "Withheld NoRoom"}},
		"a leader that is unavailable has its group": {most: 2, broken: true, want: []string{"Withheld NoRoom", "Withheld NoRoom", "Withheld NoRoom", "Withheld NoRoom"}},
		"and passes with room for its group":         {most: 3, broken: true, want: []string{"Permitted", "Withheld NoRoom", "Withheld NoRoom", "Withheld NoRoom"}},
	} {
		t.Run(name, func(t *testing.T) {
			objects := fleet(atMost(tc.most))
			objects.Pods = nil
			objects.Add(owning("leaders", 4, 0, ""), "shop")
			for i := range 4 {
				leader := fmt.Sprintf("leader-%d", i)
				objects.Add(served(leader, now.Add(-time.Hour), "StatefulSet", "leaders"), "shop")
			}
			objects = beginAll(t, objects, offline.Operation{Type: appsv1alpha1.DeleteOperationType})
			if tc.broken {
				for i := range objects.Pods[0].Status.Conditions {
					objects.Pods[0].Status.Conditions[i].Status = corev1.ConditionFalse
				}
			}
			var want []string
			for i, verdict := range tc.want {
				want = append(want, fmt.Sprintf("leader-%d %s", i, verdict))
			}
			for i := range 4 {
				leader, set := fmt.Sprintf("leader-%d", i), fmt.Sprintf("workers-%d", i)
				objects.Add(owning(set, 2, 0, leader), "shop")
				for j := range 2 {
					worker := fmt.Sprintf("%s-%d", set, j)
					objects.Add(served(worker, now.Add(-time.Hour), "StatefulSet", set), "shop")
					want = append(want, worker+" NotWaiting")
				}
			}
			if diff := cmp.Diff(want, summary(t, objects)); diff != "" {
				t.Errorf("verdicts (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMinReadySecondsPace has four pods of which one has become Ready five seconds ago.
func TestMinReadySecondsPace(t *testing.T) {
	for least, want := range map[int32]string{0: "Permitted", 3: "Permitted", 15: "Withheld NoRoom"} {
		objects := fleet(atMost(1))
		objects.Pods = nil
		objects.Add(owning("cart", 4, least, ""), "shop")
		objects.Add(served("cart-0", now.Add(-time.Hour), "StatefulSet", "cart"), "shop")
		objects = beginAll(t, objects, offline.Operation{Type: appsv1alpha1.DeleteOperationType})
		for i := range 3 {
			since := map[bool]time.Time{true: now.Add(-5 * time.Second), false: now.Add(-time.Hour)}[i == 0]
			objects.Add(served(fmt.Sprintf("cart-%d", i+1), since, "StatefulSet", "cart"), "shop")
		}
		if diff := cmp.Diff([]string{"cart-0 " + want, "cart-1 NotWaiting", "cart-2 NotWaiting", "cart-3 NotWaiting"}, summary(t, objects)); diff != "" {
			t.Errorf("minReadySeconds %d (-want +got):\n%s", least, diff)
		}
	}
}

// TestPodsWithoutTheLabelCount has a workload with four pods. A user has labelled one pod, which is to be deleted.
func TestPodsWithoutTheLabelCount(t *testing.T) {
	const deployment, earlier = "cart", "cart-1"
	labelled := map[string]string{"app": "cart", appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue}
	for name, tc := range map[string]struct {
		template map[string]string // of the Deployment
		broken   bool              // the other pods
		want     string
	}{
		"of a Deployment that has got the label":           {template: labelled, want: "Permitted"},
		"while they are unavailable":                       {template: labelled, broken: true, want: "Withheld NoRoom"},
		"not of a Deployment without it, which wants none": {template: map[string]string{"app": "cart"}, want: "Permitted"},
	} {
		objects := fleet(atMost(1))
		objects.Pods = nil
		above := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: deployment, UID: deployment}}
		above.Spec.Replicas, above.Spec.Template.Labels = new(int32(4)), tc.template
		set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: earlier, UID: earlier, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "Deployment", Name: deployment, UID: deployment, Controller: new(true)},
		}}}
		set.Spec.Replicas, set.Spec.Template.Labels = new(int32(4)), map[string]string{"app": "cart"}
		objects.Add(above, "shop")
		objects.Add(set, "shop")
		objects.Add(served("cart-0", now.Add(-time.Hour), "ReplicaSet", earlier), "shop")
		objects = beginAll(t, objects, offline.Operation{Type: appsv1alpha1.DeleteOperationType})
		for i := range 3 {
			other := served(fmt.Sprintf("cart-%d", i+1), now.Add(-time.Hour), "ReplicaSet", earlier)
			delete(other.Labels, appsv1alpha1.ControlLabelKey)
			for c := range other.Status.Conditions {
				if tc.broken {
					other.Status.Conditions[c].Status = corev1.ConditionFalse
				}
			}
			objects.Add(other, "shop")
		}
		if got := summary(t, objects)[0]; got != "cart-0 "+tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
