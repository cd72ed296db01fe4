package podindex_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/test/builders"
)

func TestRememberedPods(t *testing.T) {
	clones := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "CloneSet", Name: "web", UID: "clones"}
	pod := func(name string) *builders.PodBuilder {
		return builders.MakePod(name).Label("app", "web").OwnedBy(clones)
	}
	recorded := func(pods int32) []appsv1alpha1.OwnerPods {
		return []appsv1alpha1.OwnerPods{{UID: "clones", Pods: pods}}
	}
	known := podindex.Owner{
		UID: "clones", Namespace: "default", Kind: "StatefulSet", Name: "web", Desired: 3,
		TemplateLabels: map[string]string{"app": "web", appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue},
	}
	for name, tc := range map[string]struct {
		pods           []*builders.PodBuilder
		owners         []appsv1alpha1.OwnerPods
		owner          *podindex.Owner
		want, wantHere map[types.UID]int
	}{
		"nothing waits and nothing is recorded": {pods: []*builders.PodBuilder{pod("a").Available()}},
		"a pod is missing": {
			pods: []*builders.PodBuilder{pod("a").Available()}, owners: recorded(2),
			want: map[types.UID]int{"clones": 2}, wantHere: map[types.UID]int{"clones": 1},
		},
		"all are missing": {owners: recorded(2), want: map[types.UID]int{"clones": 2}, wantHere: map[types.UID]int{}},
		"all are there": {
			pods: []*builders.PodBuilder{pod("a").Available(), pod("b").Available()}, owners: recorded(2),
			want: map[types.UID]int{}, wantHere: map[types.UID]int{"clones": 2},
		},
		"one is permitted and may go any moment": {
			pods: []*builders.PodBuilder{pod("a").Available(), pod("b").Allowed("x", "delete")}, owners: recorded(2),
			want: map[types.UID]int{"clones": 2}, wantHere: map[types.UID]int{"clones": 2},
		},
		"one is terminating": {
			pods: []*builders.PodBuilder{pod("a").Available(), pod("b").Terminating(builders.Epoch)}, owners: recorded(2),
			want: map[types.UID]int{"clones": 2}, wantHere: map[types.UID]int{"clones": 1},
		},
		"a workload that became known": {
			pods: []*builders.PodBuilder{pod("a").Available()}, owners: recorded(2), owner: &known,
			want: map[types.UID]int{}, wantHere: map[types.UID]int{},
		},
		"a workload that waits is counted": {
			pods: []*builders.PodBuilder{
				pod("a").Available().Waiting("x", "delete", builders.Epoch),
				builders.MakePod("lone").Label("app", "web").Available(),
			},
			wantHere: map[types.UID]int{"clones": 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newIndex(t)
			for _, one := range tc.pods {
				x.put(one.Obj())
			}
			if tc.owner != nil {
				x.SetOwner(*tc.owner)
			}
			rule := boundRule("r", "r-uid", labelled())
			if tc.owners != nil {
				rule.Status.Permits = &appsv1alpha1.PermitRecord{Owners: tc.owners}
			}
			x.SetRule(rule)
			got := x.only()
			if diff := cmp.Diff(tc.want, got.Remembered); diff != "" {
				t.Errorf("remembered (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantHere, got.Owners); diff != "" {
				t.Errorf("there now (-want +got):\n%s", diff)
			}
		})
	}
}
