package uncontrolledpods

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var epoch = time.Unix(1_700_000_000, 0)

func TestDue(t *testing.T) {
	for name, tc := range map[string]struct {
		since time.Duration // before now; below zero for never
		more  bool
		list  bool
		wait  time.Duration
	}{
		"as many pods as the cache":                        {since: -1},
		"more pods than the cache, for the first time":     {since: -1, more: true, wait: settledFor},
		"a status that was behind for a moment":            {since: 4 * time.Second},
		"more pods than the cache, not for long":           {since: 4 * time.Second, more: true, wait: 6 * time.Second},
		"more pods than the cache, for a while":            {since: settledFor, more: true, list: true},
		"a workload with such pods whose status is behind": {since: time.Hour, list: true},
	} {
		t.Run(name, func(t *testing.T) {
			since := time.Time{}
			if tc.since >= 0 {
				since = epoch.Add(-tc.since)
			}
			if list, wait := due(since, tc.more, epoch); list != tc.list || wait != tc.wait {
				t.Errorf("list %t, wait %s; want %t, %s", list, wait, tc.list, tc.wait)
			}
		})
	}
}

// pod returns a pod of the workload web, without the label, that has been Ready for a minute.
func pod(name string, change func(*corev1.Pod)) corev1.Pod {
	isController := true
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kindStatefulSet, Name: "web", UID: "web", Controller: &isController}},
		},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(epoch.Add(-time.Minute))},
		}},
	}
	if change != nil {
		change(&p)
	}
	return p
}
