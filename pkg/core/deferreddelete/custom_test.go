package deferreddelete

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

func TestMayFollow(t *testing.T) {
	now := metav1.Now()
	other := func(name string, actor Actor, edits ...func(*corev1.Pod)) *corev1.Pod {
		named := func(pod *corev1.Pod) { pod.Name, pod.UID = name, types.UID(name) }
		return controlled(append([]func(*corev1.Pod){named, pending(Request{Actor: actor})}, edits...)...)
	}
	permitted := labelled(appsv1alpha1.PrepareLabelPrefix+"/pod-delete", since)
	tests := map[string]struct {
		pods     []*corev1.Pod
		begun    bool
		withheld bool
		after    time.Duration
		may      bool
		instead  string
	}{
		"the first pod":                               {may: true},
		"the pod itself":                              {pods: []*corev1.Pod{controlled()}, begun: true, may: true},
		"another pod waits":                           {pods: []*corev1.Pod{other("web-1", ActorController)}, withheld: true, after: ReplaceAnotherAfter - 1},
		"another pod begins":                          {pods: []*corev1.Pod{controlled(func(pod *corev1.Pod) { pod.UID = "web-1" })}, begun: true},
		"another pod is permitted":                    {pods: []*corev1.Pod{other("web-1", ActorController, permitted)}, withheld: true, after: time.Hour},
		"rules withhold another pod for long":         {pods: []*corev1.Pod{other("web-1", ActorController)}, withheld: true, after: ReplaceAnotherAfter, may: true, instead: "web-1"},
		"another pod has no verdict yet":              {pods: []*corev1.Pod{other("web-1", ActorController)}, after: time.Hour},
		"rules withhold two others":                   {pods: []*corev1.Pod{other("web-1", ActorController), other("web-2", ActorController)}, withheld: true, after: time.Hour},
		"another pod is being deleted":                {pods: []*corev1.Pod{other("web-1", ActorController, func(pod *corev1.Pod) { pod.DeletionTimestamp = &now })}, may: true},
		"a user has requested the removal of another": {pods: []*corev1.Pod{other("web-1", ActorClient)}, may: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			may, instead := MayFollow(controlled(), OwnedPods{
				Pods:     tc.pods,
				Begun:    func(*corev1.Pod) bool { return tc.begun },
				Withheld: func(*corev1.Pod) bool { return tc.withheld },
				Now:      requested.Add(tc.after),
			})
			got := ""
			if instead != nil {
				got = instead.Name
			}
			if may != tc.may || got != tc.instead {
				t.Errorf("got %t and %q, want %t and %q", may, got, tc.may, tc.instead)
			}
		})
	}
}
