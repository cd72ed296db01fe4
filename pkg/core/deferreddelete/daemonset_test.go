package deferreddelete

import (
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// bound returns a DaemonSet with four pods and a maxUnavailable.
func bound(most intstr.IntOrString) *appsv1.DaemonSet {
	set := &appsv1.DaemonSet{}
	set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &most}
	set.Status.DesiredNumberScheduled = 4
	return set
}

func TestMayReplace(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	daemon := func(uid string, edits ...func(*corev1.Pod)) *corev1.Pod {
		pod := controlled(ownedBy("apps/v1", "DaemonSet"))
		pod.UID = types.UID(uid)
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		for _, edit := range edits {
			edit(pod)
		}
		return pod
	}
	unready := func(pod *corev1.Pod) { pod.Status.Conditions = nil }
	begun := func(ago time.Duration, prefixes ...string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			since := strconv.FormatInt(now.Add(-ago).UnixNano(), 10)
			for _, prefix := range append(prefixes, appsv1alpha1.OperatingLabelPrefix) {
				pod.Labels[prefix+"/"+appsv1alpha1.PodDeleteID] = since
			}
			record := Request{Actor: ActorOwner}.Begin(pod, since)
			pod.Annotations = map[string]string{appsv1alpha1.PendingDeleteAnnotationKey: Encode(record), "withheld": "true"}
		}
	}
	waits := begun(ReplaceAnotherAfter, appsv1alpha1.PreCheckLabelPrefix)
	one := bound(intstr.FromInt32(1))
	surges, misscheduled := bound(intstr.FromInt32(0)), bound(intstr.FromInt32(1))
	surges.Spec.UpdateStrategy.RollingUpdate.MaxSurge = new(intstr.FromInt32(1))
	misscheduled.Status.NumberMisscheduled = 1
	for name, tc := range map[string]struct {
		set     *appsv1.DaemonSet
		pod     *corev1.Pod
		others  []*corev1.Pod
		want    bool
		instead types.UID
	}{
		"the first pod":                             {one, daemon("a"), []*corev1.Pod{daemon("b")}, true, ""},
		"a second pod":                              {one, daemon("a"), []*corev1.Pod{daemon("b", begun(0))}, false, ""},
		"beside an unavailable pod":                 {one, daemon("a"), []*corev1.Pod{daemon("b", unready)}, false, ""},
		"a pod that is unavailable itself":          {one, daemon("a", unready), []*corev1.Pod{daemon("b", begun(0))}, true, ""},
		"in place of a pod that rules withhold":     {one, daemon("a"), []*corev1.Pod{daemon("b", waits)}, true, "b"},
		"not before it has waited for a while":      {one, daemon("a"), []*corev1.Pod{daemon("b", begun(time.Second, appsv1alpha1.PreCheckLabelPrefix))}, false, ""},
		"not of one that is permitted":              {one, daemon("a"), []*corev1.Pod{daemon("b", begun(time.Minute, appsv1alpha1.PrepareLabelPrefix))}, false, ""},
		"in place of the pod that waits longest":    {bound(intstr.FromInt32(2)), daemon("a"), []*corev1.Pod{daemon("b", waits), daemon("c", begun(time.Minute, appsv1alpha1.PreCheckLabelPrefix))}, true, "c"},
		"not while more are unavailable than may":   {one, daemon("a"), []*corev1.Pod{daemon("b", waits), daemon("c", unready)}, false, ""},
		"a second pod of a half":                    {bound(intstr.FromString("50%")), daemon("a"), []*corev1.Pod{daemon("b", begun(0))}, true, ""},
		"a third pod of a half":                     {bound(intstr.FromString("50%")), daemon("a"), []*corev1.Pod{daemon("b", begun(0)), daemon("c", begun(0))}, false, ""},
		"of a strategy that creates new pods first": {surges, daemon("a"), []*corev1.Pod{daemon("b", begun(0))}, true, ""},
		"of a strategy that replaces nothing":       {&appsv1.DaemonSet{}, daemon("a"), []*corev1.Pod{daemon("b", begun(0))}, true, ""},
		"while nodes with pods are not selected":    {misscheduled, daemon("a"), []*corev1.Pod{daemon("b", begun(0))}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			may, instead := MayReplace(tc.set, tc.pod, OwnedPods{
				Pods:     append(tc.others, tc.pod),
				Begun:    func(pod *corev1.Pod) bool { return IsDeferred(pod.Labels) },
				Withheld: func(pod *corev1.Pod) bool { return pod.Annotations["withheld"] != "" },
				Now:      now,
			})
			var uid types.UID
			if may && instead != nil {
				uid = instead.UID
			}
			if may != tc.want || uid != tc.instead {
				t.Errorf("may %t in place of %q, want %t in place of %q", may, uid, tc.want, tc.instead)
			}
		})
	}
}
