package podindex_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/podindex"
	"github.com/podops-dev/podops/test/builders"
)

func TestAvailable(t *testing.T) {
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"marked and Ready":                         {pod: builders.MakePod("p").Available().Obj(), want: true},
		"marked and Ready, waiting":                {pod: builders.MakePod("p").Available().Waiting("a", "upgrade", builders.Epoch).Obj(), want: true},
		"a pod that was just created":              {pod: builders.MakePod("p").Obj()},
		"Ready and not marked":                     {pod: builders.MakePod("p").Gate(true).Ready().Obj()},
		"marked and not Ready":                     {pod: builders.MakePod("p").Available().Unready(builders.Epoch).Obj()},
		"marked and kept unready by a gate":        {pod: builders.MakePod("p").Available().UnreadyByGate(builders.Epoch).Obj()},
		"marked and without conditions":            {pod: builders.MakePod("p").Label(appsv1alpha1.ServiceAvailableLabelKey, "1").Obj()},
		"terminating":                              {pod: builders.MakePod("p").Available().Terminating(builders.Epoch).Obj()},
		"failed":                                   {pod: builders.MakePod("p").Available().Phase(corev1.PodFailed).Obj()},
		"succeeded":                                {pod: builders.MakePod("p").Available().Phase(corev1.PodSucceeded).Obj()},
		"running":                                  {pod: builders.MakePod("p").Available().Phase(corev1.PodRunning).Obj(), want: true},
		"marked with an empty value, which is one": {pod: builders.MakePod("p").Available().Label(appsv1alpha1.ServiceAvailableLabelKey, "").Obj(), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := podindex.Available(tc.pod); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

func TestSkipRules(t *testing.T) {
	huge := fmt.Sprintf(`{"skipRules":["a","%s"]}`, strings.Repeat("x", appsv1alpha1.MaxAnnotationBytes))
	for name, tc := range map[string]struct {
		annotation string
		want       []string
	}{
		"no annotation":             {},
		"some rules":                {annotation: `{"skipRules":["a"]}`, want: []string{"a"}},
		"in any order and repeated": {annotation: `{"skipRules":["b","a","b"]}`, want: []string{"a", "b"}},
		"with unknown fields":       {annotation: `{"skipRules":["a"],"because":1}`, want: []string{"a"}},
		"no rules":                  {annotation: `{"skipRules":[]}`, want: []string{}},
		"another shape":             {annotation: `["a"]`},
		"rules that are no strings": {annotation: `{"skipRules":["a",1]}`},
		"no JSON":                   {annotation: `a`},
		"JSON and more":             {annotation: `{"skipRules":["a"]} {"skipRules":["b"]}`},
		"too much of it":            {annotation: huge},
	} {
		t.Run(name, func(t *testing.T) {
			pod := waitingPod("p").Label("app", "web")
			if tc.annotation != "" {
				pod.Annotation(appsv1alpha1.SkipRulesAnnotationKey, tc.annotation)
			}
			x := newIndex(t)
			x.put(pod.Obj())
			if diff := cmp.Diff(tc.want, x.Snapshot("default", nil).Waiting[0].Pod.SkipRules); diff != "" {
				t.Errorf("skipped rules differ (-want +got):\n%s", diff)
			}
		})
	}
}

// TestVersionOfFacts: verdicts are remembered by the version of the facts, so it moves
// with whatever rules can see, and with nothing else.
func TestVersionOfFacts(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*builders.PodBuilder)
		want   bool
	}{
		"a heartbeat":             {change: func(*builders.PodBuilder) {}},
		"a condition":             {change: func(b *builders.PodBuilder) { b.Condition(corev1.PodScheduled, true, "", builders.Epoch) }},
		"an annotation":           {change: func(b *builders.PodBuilder) { b.Annotation("note", "x") }, want: true},
		"an annotation of PodOps": {change: func(b *builders.PodBuilder) { b.Annotation("detail.kusionstack.io/x", "x") }},
		"a long annotation":       {change: func(b *builders.PodBuilder) { b.Annotation("note", strings.Repeat("x", 257)) }},
		"a finalizer":             {change: func(b *builders.PodBuilder) { b.Finalizer("example.com/f") }},
		"a label":                 {change: func(b *builders.PodBuilder) { b.Label("zone", "a") }, want: true},
		"a skipped rule":          {change: func(b *builders.PodBuilder) { b.Annotation(appsv1alpha1.SkipRulesAnnotationKey, `{"skipRules":["a"]}`) }, want: true},
		"readiness":               {change: func(b *builders.PodBuilder) { b.Unready(builders.Epoch) }, want: true},
		"another waiting id":      {change: func(b *builders.PodBuilder) { b.Waiting("b", "restart", builders.Epoch.Add(time.Second)) }, want: true},
		"a begin of the same":     {change: func(b *builders.PodBuilder) { b.Waiting("a", "upgrade", builders.Epoch.Add(time.Second)) }, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			x := newIndex(t)
			pod := waitingPod("p")
			before := x.put(pod.Obj())
			tc.change(pod)
			after := x.put(pod.Obj())
			got := x.Snapshot("default", nil).Waiting[0].Pod
			if got.ResourceVersion != after {
				t.Errorf("resourceVersion %s, want %s", got.ResourceVersion, after)
			}
			want := before
			if tc.want {
				want = after
			}
			if got.Version != want {
				t.Errorf("version %s, want %s", got.Version, want)
			}
		})
	}
}

// TestVersionOfAPodThatComesBack: nothing of a pod that left is remembered.
func TestVersionOfAPodThatComesBack(t *testing.T) {
	x := newIndex(t)
	pod := waitingPod("p").Obj()
	x.put(pod)
	x.remove(pod)
	again := x.put(pod)
	if got := x.Snapshot("default", nil).Waiting[0].Pod.Version; got != again {
		t.Errorf("version %s, want %s", got, again)
	}
}
