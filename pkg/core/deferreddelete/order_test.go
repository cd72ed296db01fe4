package deferreddelete

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestMayGoBefore(t *testing.T) {
	now := metav1.Now()
	pod := func(name, revision string, edits ...func(*corev1.Pod)) *corev1.Pod {
		made := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), Labels: map[string]string{appsv1.StatefulSetRevisionLabel: revision},
			OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Name: "db", UID: "db", Controller: new(true)}},
		}}
		for _, edit := range edits {
			edit(made)
		}
		return made
	}
	leader := pod("db-3", "old")
	tests := map[string]struct {
		strategy appsv1.StatefulSetUpdateStrategyType
		others   []*corev1.Pod
		want     string
	}{
		"a lower pod of the old revision": {others: []*corev1.Pod{pod("db-0", "old"), pod("db-1", "new"), leader, pod("db-2", "old")}, want: "db-2"},
		"a pod below the partition":       {others: []*corev1.Pod{pod("db-0", "old")}},
		"pods of the new revision":        {others: []*corev1.Pod{pod("db-1", "new"), pod("db-2", "new")}},
		"a pod that is being deleted":     {others: []*corev1.Pod{pod("db-2", "old", func(pod *corev1.Pod) { pod.DeletionTimestamp = &now })}},
		"a pod of another owner":          {others: []*corev1.Pod{pod("db-2", "old", func(pod *corev1.Pod) { pod.OwnerReferences[0].UID = "other" })}},
		"a pod without an ordinal":        {others: []*corev1.Pod{pod("db-x", "old")}},
		"no rolling update":               {strategy: appsv1.OnDeleteStatefulSetStrategyType, others: []*corev1.Pod{pod("db-2", "old")}},
		"the pod itself":                  {others: []*corev1.Pod{leader}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db", UID: "db"}}
			set.Status.UpdateRevision = "new"
			set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{
				Type: tc.strategy, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(1))},
			}
			got := ""
			if other := MayGoBefore(set, leader, tc.others); other != nil {
				got = other.Name
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
