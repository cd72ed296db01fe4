package podindex_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/test/builders"
)

// TestUncontrolledPods has a StatefulSet of three, two pods of which have the label.
func TestUncontrolledPods(t *testing.T) {
	const sts types.UID = "sts"
	missing, whole := rule.Counts{Selected: 2, Desired: 3, Available: 2}, rule.Counts{Selected: 3, Desired: 3, Available: 3}
	x := newIndex(t)
	x.SetRule(x.rule("r"))
	x.SetOwner(workload(sts, "", 3))
	x.put(member("a", sts).Available().Obj())
	x.put(member("b", sts).Available().Obj())
	check := func(when string, want rule.Counts) {
		t.Helper()
		if got := x.only().Counts; got != want {
			t.Errorf("%s: %+v, want %+v", when, got, want)
		}
	}
	other := member("c", sts).Available().Obj()
	check("before it is known", missing)
	x.SetUncontrolled("default", sts, []types.UID{other.UID})
	check("an available pod without the label", whole)
	x.SetUncontrolled("default", sts, nil)
	check("once it is unavailable", missing)
	x.SetUncontrolled("default", sts, []types.UID{other.UID})
	x.put(other)
	check("once it has the label", whole)
	x.SetUncontrolled("default", sts, []types.UID{other.UID})
	check("a list from before it got the label", whole)
	x.remove(other)
	check("once it is deleted", missing)
	x.SetUncontrolled("default", "unknown", []types.UID{"d"})
	check("a pod of a workload that the rule does not cover", missing)
}

// TestUncontrolledPodsOfAnEarlierRevision has a Deployment whose template got the label during a rollout: one ReplicaSet from before
// has a pod that a user labelled.
func TestUncontrolledPodsOfAnEarlierRevision(t *testing.T) {
	const deployment, earlier types.UID = "deployment", "earlier"
	x := newIndex(t)
	x.SetRule(x.rule("r"))
	x.SetOwner(workload(deployment, "", 3))
	set := workload(earlier, deployment, 3)
	set.TemplateLabels = map[string]string{"app": "web"}
	x.SetOwner(set)
	x.put(member("a", earlier).Available().Obj())
	x.SetUncontrolled("default", earlier, []types.UID{"b", "c"})
	want := rule.Counts{Selected: 3, Desired: 3, Available: 3}
	if got := x.only().Counts; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	left := workload(deployment, "", 3)
	left.TemplateLabels = set.TemplateLabels
	x.SetOwner(left)
	want = rule.Counts{Selected: 1, Desired: 1, Available: 1}
	if got := x.only().Counts; got != want {
		t.Errorf("once the Deployment has no label: %+v, want %+v", got, want)
	}
}

// TestAvailablePods has a pod of the workload web that has been Ready for a minute.
func TestAvailablePods(t *testing.T) {
	for name, tc := range map[string]struct {
		change   func(*corev1.Pod)
		minReady time.Duration
		want     []types.UID
		remain   bool
	}{
		"a pod that serves":                           {want: []types.UID{"a-uid"}, remain: true},
		"a pod that has been Ready for minReady":      {minReady: time.Minute, want: []types.UID{"a-uid"}, remain: true},
		"a pod that has not been Ready for that long": {minReady: 2 * time.Minute, remain: true},
		"a pod that is not Ready":                     {change: func(p *corev1.Pod) { setReady(p, corev1.ConditionFalse) }, remain: true},
		"a pod that starts":                           {change: func(p *corev1.Pod) { p.Status.Conditions = nil }, remain: true},
		"a pod that has finished":                     {change: func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }},
		"a pod that terminates":                       {change: func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: builders.Epoch} }},
		"a pod of another owner":                      {change: func(p *corev1.Pod) { p.OwnerReferences[0].UID = "other" }},
		"a pod without an owner":                      {change: func(p *corev1.Pod) { p.OwnerReferences = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			pod := member("a", "web").ReadySince(builders.Epoch.Add(-time.Minute)).Obj()
			if tc.change != nil {
				tc.change(pod)
			}
			got, remain := podindex.AvailablePods("web", tc.minReady, []*corev1.Pod{pod}, builders.Epoch)
			if diff := cmp.Diff(tc.want, got); diff != "" || remain != tc.remain {
				t.Errorf("some remain: %t, want %t; available (-want +got):\n%s", remain, tc.remain, diff)
			}
		})
	}
}

func setReady(pod *corev1.Pod, status corev1.ConditionStatus) {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.PodReady {
			pod.Status.Conditions[i].Status = status
		}
	}
}
