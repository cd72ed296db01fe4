package dashboard

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podops-dev/podops/pkg/rolloutview"
)

// viewAt returns a view of pods, each as "name phase second"; the second is when the phase began.
func viewAt(began time.Time, pods ...string) rolloutview.View {
	revision := rolloutview.Revision{Name: "web-1"}
	for _, entry := range pods {
		fields := strings.Fields(entry)
		pod := rolloutview.Pod{Name: fields[0], UID: "uid-" + fields[0], Phase: rolloutview.Phase(fields[1])}
		if len(fields) > 2 {
			seconds := 0
			_, _ = fmt.Sscan(fields[2], &seconds)
			since := metav1.NewMicroTime(began.Add(time.Duration(seconds) * time.Second))
			pod.Since = &since
		}
		revision.Pods = append(revision.Pods, pod)
	}
	return rolloutview.View{Kind: "Deployment", Namespace: "shop", Name: "web", Revisions: []rolloutview.Revision{revision}}
}

// spelled returns tracks as "name: phase from-to, ...", in seconds.
func spelled(began time.Time, tracks []Track) []string {
	lines := []string{}
	for _, track := range tracks {
		spans := []string{}
		for _, span := range track.Spans {
			text := fmt.Sprintf("%s %.0f-", span.Phase, span.From.Sub(began).Seconds())
			if span.To != nil {
				text += fmt.Sprintf("%.0f", span.To.Sub(began).Seconds())
			}
			spans = append(spans, text)
		}
		lines = append(lines, track.Name+": "+strings.Join(spans, ", "))
	}
	return lines
}

func TestHistory(t *testing.T) {
	began := time.Unix(1_700_000_000, 0)
	type moment struct {
		second int
		pods   []string
		gone   bool // the workload has no view
	}
	for name, test := range map[string]struct {
		moments []moment
		want    []string
	}{
		"phases begin at the time that the pod has": {
			moments: []moment{
				{second: 0, pods: []string{"a Available -60"}},
				{second: 7, pods: []string{"a PreCheck 5"}},
				{second: 20, pods: []string{"a Preparing 12"}},
			},
			want: []string{"a: Available 0-5, PreCheck 5-12, Preparing 12-"},
		},
		"a phase without a time begins when it is seen": {
			moments: []moment{{second: 0, pods: []string{"a Available"}}, {second: 9, pods: []string{"a NotReady"}}},
			want:    []string{"a: Available 0-9, NotReady 9-"},
		},
		"times in the future and times that go backwards are cut": {
			moments: []moment{
				{second: 1, pods: []string{"a Available 50"}},
				{second: 2, pods: []string{"a PreCheck 0"}},
			},
			want: []string{"a: Available 1-1, PreCheck 1-"},
		},
		"a pod that is gone stays, in its place": {
			moments: []moment{{second: 0, pods: []string{"a Available", "b Available"}}, {second: 3, pods: []string{"b Available", "c Starting"}}},
			want:    []string{"a: Available 0-3, Gone 3-", "b: Available 0-", "c: Starting 3-"},
		},
		"a pod that is gone is forgotten after a time": {
			moments: []moment{
				{second: 0, pods: []string{"a Available", "b Available"}},
				{second: 3, pods: []string{"b Available"}},
				{second: 3 + 1801, pods: []string{"b Available"}},
			},
			want: []string{"b: Available 0-"},
		},
		"a workload that is gone is forgotten": {
			moments: []moment{{second: 0, pods: []string{"a Available"}}, {second: 1, gone: true}, {second: 2, pods: []string{"a PreCheck"}}},
			want:    []string{"a: PreCheck 2-"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			recorded := newHistory(began)
			var got map[string][]Track
			for _, moment := range test.moments {
				views := []rolloutview.View{viewAt(began, moment.pods...)}
				if moment.gone {
					views = nil
				}
				got = recorded.record(views, began.Add(time.Duration(moment.second)*time.Second))
			}
			if diff := cmp.Diff(test.want, spelled(began, got["Deployment/shop/web"])); diff != "" {
				t.Errorf("tracks differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHistoryIsBounded(t *testing.T) {
	began := time.Unix(1_700_000_000, 0)
	recorded := newHistory(began)
	var got map[string][]Track
	for i := range 10 * maxSpans {
		phase := []string{"Available", "PreCheck"}[i%2]
		got = recorded.record([]rolloutview.View{viewAt(began, "a "+phase)}, began.Add(time.Duration(i)*time.Second))
	}
	if spans := len(got["Deployment/shop/web"][0].Spans); spans != maxSpans {
		t.Errorf("got %d spans, want %d", spans, maxSpans)
	}
}
