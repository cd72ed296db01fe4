package podindex_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/builders"
)

// numbered are so many annotations: n-00, n-01, ...
func numbered(count int) map[string]string {
	all := map[string]string{}
	for i := range count {
		all[fmt.Sprintf("n-%02d", i)] = "x"
	}
	return all
}

func TestVisibleAnnotations(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations map[string]string
		want        map[string]string
	}{
		"none":         {},
		"a short one":  {annotations: map[string]string{"example.com/team": "shop"}, want: map[string]string{"example.com/team": "shop"}},
		"an empty one": {annotations: map[string]string{"note": ""}, want: map[string]string{"note": ""}},
		"a value of 256 bytes": {
			annotations: map[string]string{"note": strings.Repeat("x", 256)}, want: map[string]string{"note": strings.Repeat("x", 256)},
		},
		"a value of 257 bytes": {annotations: map[string]string{"note": strings.Repeat("x", 257), "other": "y"}, want: map[string]string{"other": "y"}},
		"those of PodOps": {
			annotations: map[string]string{
				appsv1alpha1.AvailableConditionsAnnotationKey: "{}", appsv1alpha1.SkipRulesAnnotationKey: "{}",
				"kusionstack.io/x": "1", appsv1alpha1.DetailAnnotationPrefix + "/web": "{}",
			},
		},
		"annotations that only look like it": {
			annotations: map[string]string{"notkusionstack.io/x": "1", "kusionstack.io": "2", "kusionstack.io.example.com/x": "3"},
			want:        map[string]string{"notkusionstack.io/x": "1", "kusionstack.io": "2", "kusionstack.io.example.com/x": "3"},
		},
		"32":           {annotations: numbered(32), want: numbered(32)},
		"more than 32": {annotations: numbered(40), want: numbered(32)},
		"more than 32, some of which do not count": {
			annotations: func() map[string]string {
				all := numbered(32)
				all["kusionstack.io/x"] = "1"
				all["a"] = strings.Repeat("x", 300)
				return all
			}(),
			want: numbered(32),
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := waitingPod("p")
			for key, value := range tc.annotations {
				pod.Annotation(key, value)
			}
			x := newIndex(t)
			x.put(pod.Obj())
			if diff := cmp.Diff(tc.want, x.Snapshot("default", nil).Waiting[0].Pod.Annotations); diff != "" {
				t.Errorf("annotations differ (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMapsAreShared tests that maps that rules see unchanged are not copied.
func TestMapsAreShared(t *testing.T) {
	x := newIndex(t)
	x.SetRule(x.rule("r"))
	pod := builders.MakePod("p").Label("app", "web").Annotation("example.com/team", "shop").Obj()
	pod.ResourceVersion = x.next()
	x.must(x.store.Add(pod))
	got := x.Snapshot("default", everyPod).Rules[0].Pods[0]
	for what, maps := range map[string][2]map[string]string{
		"labels": {pod.Labels, got.Labels}, "annotations": {pod.Annotations, got.Annotations},
	} {
		if reflect.ValueOf(maps[0]).Pointer() != reflect.ValueOf(maps[1]).Pointer() {
			t.Errorf("the %s were copied", what)
		}
	}
}

// everyPod requests the pods of every PodTransitionRule.
func everyPod(*appsv1alpha1.PodTransitionRule) bool { return true }
