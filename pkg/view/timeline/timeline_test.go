package timeline_test

import (
	"encoding/xml"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/view/rolloutview"
	"github.com/podops-dev/podops/pkg/view/timeline"
	"github.com/podops-dev/podops/test/builders"
	"github.com/podops-dev/podops/test/golden"
)

// at is a moment of a test, in seconds after the Epoch of the builders.
func at(seconds float64) time.Time {
	return builders.Epoch.Add(time.Duration(seconds * float64(time.Second)))
}

func created(pod *corev1.Pod, seconds float64) *corev1.Pod {
	pod.CreationTimestamp = metav1.NewTime(at(seconds))
	return pod
}

func labeled(pod *corev1.Pod, labels map[string]float64) *corev1.Pod {
	for key, seconds := range labels {
		pod.Labels[key] = builders.Stamp(at(seconds))
	}
	return pod
}

func of(prefix string) string { return prefix + "/pod-delete" }

func linesOf(pod timeline.Pod) []string {
	var lines []string
	for _, span := range pod.Spans {
		lines = append(lines, fmt.Sprintf("%s %s %s (%s)", span.Phase, span.From.Sub(builders.Epoch), span.Precision, span.Source))
	}
	return lines
}

func noRevision(*corev1.Pod) string { return "" }

func event(pod *corev1.Pod, reason string, seconds float64) *corev1.Event {
	return &corev1.Event{
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: pod.Name, UID: pod.UID}, Reason: reason, FirstTimestamp: metav1.NewTime(at(seconds)),
	}
}

func TestHistoryOfAnOperationInProgress(t *testing.T) {
	pod := labeled(created(builders.MakePod("web-0").Unready(at(20)).Obj(), 0), map[string]float64{
		of(appsv1alpha1.OperatingLabelPrefix): 10.25, of(appsv1alpha1.PreCheckedLabelPrefix): 14.5, of(appsv1alpha1.OperateLabelPrefix): 16.125,
	})
	got := timeline.History([]*corev1.Pod{pod}, []*corev1.Event{
		event(pod, "ServiceAvailable", 5), event(pod, "Permitted", 14), event(pod, "Withheld", 12),
	}, noRevision)
	want := []string{
		"Starting 0s Second (metadata.creationTimestamp)",
		"Available 5s Second (event ServiceAvailable)",
		"PreCheck 10.25s Exact (label operating)",
		"Preparing 14.5s Exact (label pre-checked)",
		"Operating 16.125s Exact (label operate)",
	}
	if diff := cmp.Diff(want, linesOf(got[0])); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
}

// TestHistoryOfPodsThatAreGone shows that their events are all that is left.
// TestLabelsOfOtherTimes has labels that a person wrote: their times lie outside the life of the pod.
func TestLabelsOfOtherTimes(t *testing.T) {
	pod := created(builders.MakePod("web-0").Unready(at(20)).Obj(), 0)
	pod.Labels[of(appsv1alpha1.OperatingLabelPrefix)] = "1"
	pod.Labels[of(appsv1alpha1.OperateLabelPrefix)] = builders.Stamp(at(7200))
	pods := timeline.History([]*corev1.Pod{pod}, nil, noRevision)
	made := timeline.New("Pod/web-0 in demo", pods, time.Time{}, at(40))
	want := []string{"Starting 0s Second (metadata.creationTimestamp)", "Operating 40s Exact (label operate)"}
	if diff := cmp.Diff(want, linesOf(made.Pods[0])); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
	if text := made.Frame(80).Text(); !strings.Contains(text, "web-0") {
		t.Errorf("the frame has no pod:\n%s", text)
	}
	var page strings.Builder
	if err := made.HTML(&page); err != nil {
		t.Error(err)
	}
}

func TestHistoryOfPodsThatAreGone(t *testing.T) {
	gone := builders.MakePod("web-6d4f-abcde").Obj()
	got := timeline.History(nil, []*corev1.Event{event(gone, "ServiceAvailable", 5), event(gone, "Permitted", 30)}, noRevision)
	if len(got) != 1 || !got[0].Gone || got[0].Revision != "web-6d4f" {
		t.Fatalf("got %+v", got)
	}
	want := []string{"Available 5s Second (event ServiceAvailable)", "Preparing 30s Second (event Permitted)"}
	if diff := cmp.Diff(want, linesOf(got[0])); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
}

func TestHistoryOfATerminatingPod(t *testing.T) {
	pod := created(builders.MakePod("web-0").Available().Terminating(at(50)).Obj(), -10)
	got := timeline.History([]*corev1.Pod{pod}, nil, noRevision)
	want := []string{
		"Starting -10s Second (metadata.creationTimestamp)", "Available 0s Exact (label service-available)",
		"Terminating 50s Second (metadata.deletionTimestamp)",
	}
	if diff := cmp.Diff(want, linesOf(got[0])); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
}

// TestRecorderTakesTimesFromLabels shows that phases between two observations are recorded with the
// times that the manager wrote.
func TestRecorderTakesTimesFromLabels(t *testing.T) {
	var recorder timeline.Recorder
	pod := labeled(created(builders.MakePod("web-0").Available().Obj(), -60), map[string]float64{appsv1alpha1.ServiceAvailableLabelKey: -30})
	recorder.Observe(pod, "a", at(0))
	waiting := pod.DeepCopy()
	labeled(waiting, map[string]float64{of(appsv1alpha1.OperatingLabelPrefix): 1.5, of(appsv1alpha1.PreCheckLabelPrefix): 1.5})
	recorder.Observe(waiting, "a", at(2))
	// Permit and operate came between two observations.
	operating := labeled(builders.MakePod("web-0").Unready(at(3)).Obj(), map[string]float64{
		of(appsv1alpha1.OperatingLabelPrefix): 1.5, of(appsv1alpha1.PreCheckedLabelPrefix): 4.5, of(appsv1alpha1.OperateLabelPrefix): 5.25,
	})
	recorder.Observe(operating, "a", at(6))
	recorder.Observe(operating, "a", at(7))
	deleted := operating.DeepCopy()
	stamp := metav1.NewTime(at(8))
	deleted.DeletionTimestamp = &stamp
	recorder.Observe(deleted, "a", at(8.5))
	recorder.Remove(pod.UID, at(10))
	recorder.Remove("unknown", at(10))

	t1 := timeline.New("web", recorder.Pods(), at(0), at(20))
	want := []string{
		"Available 0s Exact (label service-available)", "PreCheck 1.5s Exact (label operating)", "Preparing 4.5s Exact (label pre-checked)",
		"Operating 5.25s Exact (label operate)", "Terminating 8.5s Observed (watch)",
	}
	if diff := cmp.Diff(want, linesOf(t1.Pods[0])); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
	if last := t1.Pods[0].Spans[4]; !t1.Pods[0].Gone || !last.To.Equal(at(10)) {
		t.Errorf("the pod ends at %s, gone %t; want 10s after the beginning", last.To, t1.Pods[0].Gone)
	}
}

// TestFollow records every version that a watch delivers, also between two lists and in any order with them.
func TestFollow(t *testing.T) {
	// version returns a pod in a phase; its resourceVersion is the second.
	version := func(name string, phase rolloutview.Phase, seconds float64) *corev1.Pod {
		pod := builders.MakePod(name)
		switch phase {
		case rolloutview.PhaseStarting:
			pod = pod.Unready(at(-60))
		default:
			pod = pod.Available()
		}
		if phase == rolloutview.PhaseTerminating {
			pod = pod.Terminating(at(seconds))
		}
		object := created(pod.Obj(), -60)
		if phase != rolloutview.PhaseStarting {
			labeled(object, map[string]float64{appsv1alpha1.ServiceAvailableLabelKey: 2.25})
		}
		object.ResourceVersion = strconv.Itoa(int(seconds * 10))
		return object
	}
	change := func(pod *corev1.Pod, seconds float64) timeline.Change {
		return timeline.Change{Pod: pod, At: at(seconds)}
	}
	starting, available := version("web-0", rolloutview.PhaseStarting, 1), version("web-0", rolloutview.PhaseAvailable, 2)
	unready, terminating := version("web-0", rolloutview.PhaseStarting, 3), version("web-0", rolloutview.PhaseTerminating, 4)
	marked := labeled(version("web-0", rolloutview.PhaseStarting, 1.5), map[string]float64{appsv1alpha1.ServiceAvailableLabelKey: 2.25})
	type step struct {
		pods     []*corev1.Pod
		changes  []timeline.Change
		complete bool
	}
	for name, test := range map[string]struct {
		steps []step
		want  []string
		gone  bool
	}{
		"versions between two lists": {
			steps: []step{
				{pods: []*corev1.Pod{starting}, complete: true},
				{pods: []*corev1.Pod{terminating}, changes: []timeline.Change{change(available, 2.25), change(unready, 3.25), change(terminating, 4.25)}, complete: true},
			},
			want: []string{"Starting -1m0s", "Available 2.25s", "Starting 3.25s", "Terminating 4.25s"},
		},
		"a kubelet that reports Ready after the label": {
			steps: []step{
				{pods: []*corev1.Pod{starting}, complete: true},
				{pods: []*corev1.Pod{available}, changes: []timeline.Change{change(marked, 1.5), change(available, 2.5)}, complete: true},
			},
			want: []string{"Starting -1m0s", "Available 2.25s"},
		},
		"a list that is ahead of the changes": {
			steps: []step{
				{pods: []*corev1.Pod{starting}, complete: true},
				{pods: []*corev1.Pod{terminating}},
				{pods: []*corev1.Pod{terminating}, changes: []timeline.Change{change(available, 2.25), change(terminating, 4.25)}, complete: true},
			},
			want: []string{"Starting -1m0s", "Available 2.25s", "Terminating 4.25s"},
		},
		"changes that are older than the first list": {
			steps: []step{
				{pods: []*corev1.Pod{terminating}, complete: true},
				{pods: []*corev1.Pod{terminating}, changes: []timeline.Change{change(starting, 1.25), change(available, 2.25)}, complete: true},
			},
			want: []string{"Starting -1m0s", "Available 2.25s", "Terminating 4s"},
		},
		"a deletion": {
			steps: []step{
				{pods: []*corev1.Pod{starting}, complete: true},
				{changes: []timeline.Change{change(terminating, 4.25), {Pod: terminating, At: at(5), Deleted: true}, change(available, 6)}, complete: true},
			},
			want: []string{"Starting -1m0s", "Available 2.25s", "Terminating 4.25s"}, gone: true,
		},
		"a pod that leaves the lists without a deletion": {
			steps: []step{{pods: []*corev1.Pod{starting}, complete: true}, {}, {complete: true}},
			want:  []string{"Starting -1m0s"}, gone: true,
		},
		"a pod of others": {
			steps: []step{
				{pods: []*corev1.Pod{starting}, complete: true},
				{pods: []*corev1.Pod{starting}, changes: []timeline.Change{change(version("other", rolloutview.PhaseAvailable, 2), 2)}, complete: true},
			},
			want: []string{"Starting -1m0s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var recorder timeline.Recorder
			for i, step := range test.steps {
				if complete := recorder.Follow(step.pods, step.changes, noRevision, at(float64(10+i))); complete != step.complete {
					t.Errorf("step %d: complete %t, want %t", i, complete, step.complete)
				}
			}
			pods := recorder.Pods()
			if len(pods) != 1 || pods[0].Gone != test.gone {
				t.Fatalf("pods %+v, want web-0 with gone %t", pods, test.gone)
			}
			got := []string{}
			for _, span := range pods[0].Spans {
				got = append(got, fmt.Sprintf("%s %s", span.Phase, span.From.Sub(builders.Epoch)))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("phases (-want +got):\n%s", diff)
			}
		})
	}
}

func TestForget(t *testing.T) {
	var recorder timeline.Recorder
	for _, name := range []string{"gone", "here"} {
		recorder.Observe(created(builders.MakePod(name).Obj(), 0), "", at(0))
	}
	recorder.Remove(builders.MakePod("gone").Obj().UID, at(5))
	recorder.Forget(at(4))
	if pods := recorder.Pods(); len(pods) != 2 {
		t.Errorf("%d pods, want both: the deletion is not older than 4 s", len(pods))
	}
	recorder.Forget(at(6))
	if pods := recorder.Pods(); len(pods) != 1 || pods[0].Name != "here" {
		t.Errorf("pods %+v, want the pod that exists", pods)
	}
}

func TestSpansAndChangesAreBounded(t *testing.T) {
	var changes timeline.Changes
	ready, unready := builders.MakePod("web-0").Available().Obj(), builders.MakePod("web-0").Unready(at(0)).Obj()
	for i := range 10_000 {
		changes.Add(timeline.Change{Pod: []*corev1.Pod{ready, unready}[i%2], At: at(float64(i))})
	}
	taken := changes.Take()
	if len(taken) > 4096 || !taken[len(taken)-1].At.Equal(at(9999)) {
		t.Errorf("%d changes until %s, want at most 4096 with the last one", len(taken), taken[len(taken)-1].At)
	}
	if again := changes.Take(); len(again) != 0 {
		t.Errorf("%d changes were taken twice", len(again))
	}
	var recorder timeline.Recorder
	recorder.Follow([]*corev1.Pod{ready}, taken, noRevision, at(10_000))
	if spans := len(recorder.Pods()[0].Spans); spans != timeline.MaxSpans {
		t.Errorf("%d phases, want %d", spans, timeline.MaxSpans)
	}
}

// rollout is a timeline of two old pods that go and two new ones.
func rollout() timeline.Timeline {
	pod := func(name, revision string, gone bool, spans ...timeline.Span) timeline.Pod {
		for i := range spans[:len(spans)-1] {
			spans[i].To = spans[i+1].From
		}
		return timeline.Pod{Name: name, UID: name, Revision: revision, Spans: spans, Gone: gone}
	}
	span := func(phase rolloutview.Phase, from float64) timeline.Span {
		return timeline.Span{Phase: phase, From: at(from), Source: "watch", Precision: timeline.Observed}
	}
	ending := func(phase rolloutview.Phase, from, to float64) timeline.Span {
		last := span(phase, from)
		last.To = at(to)
		return last
	}
	return timeline.New("Deployment/web in demo", []timeline.Pod{
		pod("web-7b9d8e6f5c-fffff", "web-7b9d8e6f5c", false, span(rolloutview.PhaseStarting, 1), span(rolloutview.PhaseAvailable, 11.5)),
		pod("web-6d4f5c7b9d-aaaaa", "web-6d4f5c7b9d", true, span(rolloutview.PhaseAvailable, -50), span(rolloutview.PhasePreCheck, 1),
			span(rolloutview.PhasePreparing, 14), span(rolloutview.PhaseOperating, 15), ending(rolloutview.PhaseTerminating, 15.5, 18)),
		pod("web-6d4f5c7b9d-bbbbb", "web-6d4f5c7b9d", false, span(rolloutview.PhaseAvailable, -50), span(rolloutview.PhasePreCheck, 2)),
		pod("web-7b9d8e6f5c-<&>", "web-7b9d8e6f5c", false, span(rolloutview.PhaseStarting, 14)),
	}, at(0), at(40))
}

func TestFrame(t *testing.T) {
	one := rollout()
	one.Title, one.Pods = "Pod/web-6d4f5c7b9d-aaaaa in demo", one.Pods[:1]
	for name, tc := range map[string]struct {
		timeline timeline.Timeline
		width    int
	}{
		"rollout-80": {rollout(), 80}, "rollout-40": {rollout(), 40}, "rollout-200": {rollout(), 200}, "pod-80": {one, 80},
		"nothing-80": {timeline.New("Deployment/web in demo", nil, at(0), at(1)), 80},
	} {
		t.Run(name, func(t *testing.T) {
			frame := tc.timeline.Frame(tc.width)
			golden.Check(t, filepath.Join("testdata", name+".txt"), frame.Text())
			for _, line := range frame {
				if columns := rolloutview.Width(line.Text()); columns > tc.width || strings.HasSuffix(line.Text(), " ") {
					t.Errorf("line has %d columns, want at most %d and no space at the end: %q", columns, tc.width, line.Text())
				}
			}
		})
	}
}

// TestPage shows that the page needs no other file, escapes names, and has each phase in its chart and its table.
func TestPage(t *testing.T) {
	var out strings.Builder
	if err := rollout().HTML(&out); err != nil {
		t.Fatal(err)
	}
	page := out.String()
	golden.Check(t, filepath.Join("testdata", "page.html"), page)
	for _, outside := range []string{"http://", "https://", "src=", "<link", "@import", "url("} {
		if strings.Contains(page, outside) {
			t.Errorf("the page refers to another file: %s", outside)
		}
	}
	if strings.Contains(page, "web-7b9d8e6f5c-<&>") || !strings.Contains(page, "web-7b9d8e6f5c-&lt;&amp;&gt;") {
		t.Error("the name of a pod is not escaped")
	}
	spans := 0
	for _, pod := range rollout().Pods {
		spans += len(pod.Spans)
	}
	if rects, rows := strings.Count(page, "<rect "), strings.Count(page, `</td><td class="number">`); rects != spans || rows < spans {
		t.Errorf("the page has %d bars and %d rows for %d phases", rects, rows, spans)
	}
}

func TestPodsAreBounded(t *testing.T) {
	var recorder timeline.Recorder
	for i := range timeline.MaxPods + 10 {
		recorder.Observe(created(builders.MakePod(fmt.Sprintf("web-%04d", i)).Obj(), float64(i)), "", at(float64(i)))
	}
	if got := recorder.Pods(); len(got) != timeline.MaxPods || got[0].Name != "web-0010" {
		t.Errorf("%d pods from %s, want the last %d", len(got), got[0].Name, timeline.MaxPods)
	}
}

// TestPicture shows that the picture needs no other file, and has each phase.
func TestPicture(t *testing.T) {
	var out strings.Builder
	if err := rollout().SVG(&out); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, filepath.Join("testdata", "picture.svg"), out.String())
	if err := xml.Unmarshal([]byte(out.String()), new(struct{})); err != nil {
		t.Errorf("the picture is no XML: %v", err)
	}
	spans := 0
	for _, pod := range rollout().Pods {
		spans += len(pod.Spans)
	}
	if rects := strings.Count(out.String(), "</title></rect>"); rects != spans {
		t.Errorf("the picture has %d bars for %d phases", rects, spans)
	}
}
