package timeline_test

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/view/rolloutview"
	"github.com/podops-dev/podops/pkg/view/timeline"
	"github.com/podops-dev/podops/test/builders"
)

// viewOf returns a view of pods; the pod of a reason is withheld.
func viewOf(seconds float64, reasons map[string]string, pods ...*corev1.Pod) rolloutview.View {
	view := rolloutview.View{Time: metav1.NewTime(at(seconds)), Revisions: make([]rolloutview.Revision, 1)}
	for _, pod := range pods {
		phase, _ := rolloutview.PodPhase(pod)
		shown := rolloutview.Pod{Name: pod.Name, UID: string(pod.UID), Phase: phase}
		if reason := reasons[pod.Name]; reason != "" {
			shown.Withheld = &rolloutview.Withheld{Rule: "web/approved", Reason: reason, Message: "no, at " + strconv.FormatFloat(seconds, 'g', -1, 64)}
		}
		view.Revisions[0].Pods = append(view.Revisions[0].Pods, shown)
	}
	return view
}

// TestStream has every phase of every pod, also phases that begin and end between two views.
func TestStream(t *testing.T) {
	version := func(pod *corev1.Pod, seconds float64, labels map[string]float64) *corev1.Pod {
		labels[appsv1alpha1.ServiceAvailableLabelKey] = -30
		pod = labeled(created(pod, -60), labels)
		pod.ResourceVersion = strconv.Itoa(int(seconds * 10))
		return pod
	}
	available := version(builders.MakePod("web-0").Available().Obj(), 0.1, map[string]float64{})
	waiting := version(builders.MakePod("web-0").Available().Obj(), 2, map[string]float64{
		of(appsv1alpha1.OperatingLabelPrefix): 1.5, of(appsv1alpha1.PreCheckLabelPrefix): 1.5,
	})
	preparing := version(builders.MakePod("web-0").Unready(at(5)).Obj(), 5, map[string]float64{
		of(appsv1alpha1.OperatingLabelPrefix): 1.5, of(appsv1alpha1.PreCheckedLabelPrefix): 4.5, of(appsv1alpha1.PrepareLabelPrefix): 4.5,
	})
	operating := version(builders.MakePod("web-0").Unready(at(5)).Obj(), 6, map[string]float64{
		of(appsv1alpha1.OperatingLabelPrefix): 1.5, of(appsv1alpha1.PreCheckedLabelPrefix): 4.5, of(appsv1alpha1.OperateLabelPrefix): 5.5,
	})
	terminating := operating.DeepCopy()
	terminating.ResourceVersion = "70"
	stamp := metav1.NewTime(at(7))
	terminating.DeletionTimestamp = &stamp
	fresh := version(builders.MakePod("web-1").Available().Obj(), 8, map[string]float64{})
	approved := func(reason string) map[string]string { return map[string]string{"web-0": reason} }
	change := func(pod *corev1.Pod, seconds float64, deleted bool) timeline.Change {
		return timeline.Change{Pod: pod, At: at(seconds), Deleted: deleted}
	}

	var stream timeline.Stream
	for _, step := range []struct {
		name    string
		view    rolloutview.View
		pods    []*corev1.Pod
		changes []timeline.Change
		want    []string
		ahead   bool
	}{
		{name: "the first view", view: viewOf(1, nil, available), pods: []*corev1.Pod{available},
			want: []string{"00:00:01  web-0  Available"}},
		{name: "a view that is ahead of the changes", view: viewOf(2, approved("Denied"), waiting), pods: []*corev1.Pod{waiting}, ahead: true},
		{name: "the change of that view", view: viewOf(2, approved("Denied"), waiting), pods: []*corev1.Pod{waiting},
			changes: []timeline.Change{change(waiting, 2, false)},
			want:    []string{"00:00:01  web-0  Available → PreCheck     web/approved: no, at 2"}},
		{name: "another message", view: viewOf(3, approved("Denied"), waiting), pods: []*corev1.Pod{waiting}},
		{name: "another reason", view: viewOf(4, approved("NoRoom"), waiting), pods: []*corev1.Pod{waiting},
			want: []string{"00:00:04  web-0  PreCheck                 web/approved: no, at 4"}},
		{name: "four phases and a new pod between two views", view: viewOf(9, nil, fresh), pods: []*corev1.Pod{fresh},
			changes: []timeline.Change{
				change(preparing, 5, false), change(operating, 6, false), change(terminating, 7, false), change(fresh, 8, false),
				change(terminating, 8.5, true),
			},
			want: []string{
				"23:59:00  web-1  Starting", "23:59:30  web-1  Starting → Available", "00:00:04  web-0  PreCheck → Preparing",
				"00:00:05  web-0  Preparing → Operating", "00:00:07  web-0  Operating → Terminating", "00:00:08  web-0  Terminating → Gone",
			}},
		{name: "nothing new", view: viewOf(10, nil, fresh), pods: []*corev1.Pod{fresh}},
		{name: "after the pod is forgotten", view: viewOf(90, nil, fresh), pods: []*corev1.Pod{fresh}},
		{name: "long after", view: viewOf(91, nil, fresh), pods: []*corev1.Pod{fresh}, changes: []timeline.Change{change(terminating, 90, true)}},
	} {
		changes, complete := stream.Next(step.view, step.pods, step.changes)
		var got []string
		for _, one := range changes {
			got = append(got, one.String())
		}
		if diff := cmp.Diff(step.want, got); diff != "" || complete == step.ahead {
			t.Errorf("%s: complete %t; changes (-want +got):\n%s", step.name, complete, diff)
		}
	}
}
