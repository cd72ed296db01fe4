package podindex_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/builders"
)

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

// TestVersionOfFacts matters because verdicts are remembered by the version of the facts, so it moves
// with the fields that rules can see, and with no other field.
func TestVersionOfFacts(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*builders.PodBuilder)
		want   bool

		// details is set if only the version with details moves.
		details bool
	}{
		"a heartbeat":             {change: func(*builders.PodBuilder) {}},
		"a condition":             {change: func(b *builders.PodBuilder) { b.Condition(corev1.PodScheduled, true, "", builders.Epoch) }, details: true},
		"a restart":               {change: func(b *builders.PodBuilder) { b.Restarts(1) }, details: true},
		"an image":                {change: func(b *builders.PodBuilder) { b.Image("web:v2") }, details: true},
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
			if tc.details {
				want = after
			}
			if got.Details.Version != want {
				t.Errorf("version with details %s, want %s", got.Details.Version, want)
			}
		})
	}
}

// TestVersionOfAPodThatComesBack shows that nothing of a pod that left is remembered.
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
