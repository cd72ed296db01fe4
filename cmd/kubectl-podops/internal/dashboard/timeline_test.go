package dashboard

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podops-dev/podops/pkg/view/timeline"
	"github.com/podops-dev/podops/test/builders"
)

// at is a time after the dashboard began to watch.
func at(seconds int) time.Time { return builders.Epoch.Add(time.Duration(seconds) * time.Second) }

// podAt returns a version of a pod of an hour ago: "a ready" or "a unready", since a second.
func podAt(entry string, second int) *corev1.Pod {
	name, state, _ := strings.Cut(entry, " ")
	pod := builders.MakePod(name).Available()
	if state == "unready" {
		pod = builders.MakePod(name).Unready(at(second))
	}
	object := pod.Obj()
	object.CreationTimestamp = metav1.NewTime(at(-3600))
	object.ResourceVersion = strconv.Itoa(second + 1)
	return object
}

// spelled returns tracks as "name: phase from-to, ...", in seconds.
func spelled(tracks []Track) []string {
	lines := []string{}
	for _, track := range tracks {
		spans := []string{}
		for _, span := range track.Spans {
			text := fmt.Sprintf("%s %.0f-", span.Phase, span.From.Sub(builders.Epoch).Seconds())
			if span.To != nil {
				text += fmt.Sprintf("%.0f", span.To.Sub(builders.Epoch).Seconds())
			}
			spans = append(spans, text)
		}
		lines = append(lines, track.Name+": "+strings.Join(spans, ", "))
	}
	return lines
}

func TestHistory(t *testing.T) {
	const key = "Deployment/shop/web"
	type state struct {
		second  int
		pods    []string
		changes []string // "second name state", or "second name gone"
		gone    bool     // the workload is not in the state
	}
	for name, test := range map[string]struct {
		states []state
		want   []string
	}{
		"phases begin with the dashboard": {
			states: []state{{second: 1, pods: []string{"a ready"}}},
			want:   []string{"a: Available 0-"},
		},
		"phases between two states are shown": {
			states: []state{
				{second: 1, pods: []string{"a ready"}},
				{second: 20, pods: []string{"a ready"}, changes: []string{"5 a unready", "8 a ready"}},
			},
			want: []string{"a: Available 0-5, Starting 5-8, Available 8-"},
		},
		"a pod that is gone stays, in its place": {
			states: []state{
				{second: 1, pods: []string{"a ready", "b ready"}},
				{second: 3, pods: []string{"b ready", "c ready"}, changes: []string{"2 a gone"}},
			},
			want: []string{"a: Available 0-2", "b: Available 0-", "c: Available 0-"},
		},
		"a pod that is gone is forgotten after a time": {
			states: []state{
				{second: 1, pods: []string{"a ready", "b ready"}},
				{second: 3, pods: []string{"b ready"}, changes: []string{"3 a gone"}},
				{second: 3 + 1801, pods: []string{"b ready"}},
			},
			want: []string{"b: Available 4-"},
		},
		"a workload that is gone is forgotten": {
			states: []state{
				{second: 1, pods: []string{"a ready"}}, {second: 2, gone: true}, {second: 3, pods: []string{"a unready"}},
			},
			want: []string{"a: Starting 0-"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			recorded := newHistory(builders.Epoch)
			var got map[string][]Track
			for _, state := range test.states {
				workloads := map[string][]*corev1.Pod{key: {}}
				for _, entry := range state.pods {
					workloads[key] = append(workloads[key], podAt(entry, 0))
				}
				if state.gone {
					workloads = nil
				}
				var changes []timeline.Change
				for _, entry := range state.changes {
					number, pod, _ := strings.Cut(entry, " ")
					second, err := strconv.Atoi(number)
					if err != nil {
						t.Fatal(err)
					}
					changes = append(changes, timeline.Change{Pod: podAt(pod, second), At: at(second), Deleted: strings.HasSuffix(pod, " gone")})
				}
				got = recorded.record(workloads, changes, at(state.second))
			}
			if diff := cmp.Diff(test.want, spelled(got[key])); diff != "" {
				t.Errorf("tracks differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHistoryIsBounded(t *testing.T) {
	recorded := newHistory(builders.Epoch)
	var changes []timeline.Change
	for i := range 10 * maxSpans {
		pod := podAt([]string{"a ready", "a unready"}[i%2], i)
		changes = append(changes, timeline.Change{Pod: pod, At: at(i)})
	}
	got := recorded.record(map[string][]*corev1.Pod{"Deployment/shop/web": {podAt("a ready", 0)}}, changes, at(10*maxSpans))
	if spans := len(got["Deployment/shop/web"][0].Spans); spans != maxSpans {
		t.Errorf("got %d spans, want %d", spans, maxSpans)
	}
}
