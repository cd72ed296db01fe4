package permit_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/permit"
)

// record returns a record that requires a view, with pods by UID and resourceVersion in turn.
func record(view string, pods ...string) *appsv1alpha1.PermitRecord {
	return &appsv1alpha1.PermitRecord{ViewResourceVersion: view, Reserved: list(pods...)}
}

func list(pods ...string) []appsv1alpha1.ReservedPod {
	var reserved []appsv1alpha1.ReservedPod
	for i := 0; i < len(pods); i += 2 {
		reserved = append(reserved, appsv1alpha1.ReservedPod{UID: types.UID(pods[i]), Name: pods[i], ResourceVersion: pods[i+1]})
	}
	return reserved
}

// pods are the resourceVersions of the pods of a view.
type pods map[types.UID]string

func (p pods) at(uid types.UID) string { return p[uid] }

func TestLive(t *testing.T) {
	for name, tc := range map[string]struct {
		record *appsv1alpha1.PermitRecord
		pods   pods
		want   []appsv1alpha1.ReservedPod
	}{
		"no record":                              {pods: pods{"p": "10"}},
		"a pod at its recorded version":          {record: record("", "p", "10"), pods: pods{"p": "10"}, want: list("p", "10")},
		"a pod with a newer version":             {record: record("", "p", "10"), pods: pods{"p": "11"}},
		"a pod that is gone":                     {record: record("", "p", "10")},
		"a record that names no version":         {record: record("", "p", ""), pods: pods{"p": "10"}},
		"a record that names nothing that is":    {record: record("", "p", "")},
		"another pod of the same name came":      {record: record("", "p", "10"), pods: pods{"p2": "10"}},
		"some are live and stay in their order":  {record: record("", "p", "10", "q", "11", "r", "12"), pods: pods{"p": "10", "q": "15", "r": "12"}, want: list("p", "10", "r", "12")},
		"versions are compared as they are text": {record: record("", "p", "010"), pods: pods{"p": "10"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, permit.Live(tc.record, tc.pods.at)); diff != "" {
				t.Errorf("live reservations differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReaches(t *testing.T) {
	for name, tc := range map[string]struct {
		view   string
		record *appsv1alpha1.PermitRecord
		want   bool
	}{
		"no record requires nothing":                    {view: "", want: true},
		"an empty record requires nothing":              {view: "", record: record(""), want: true},
		"a view that goes further":                      {view: "10", record: record("9"), want: true},
		"a view that goes as far":                       {view: "10", record: record("10"), want: true},
		"a view that is behind":                         {view: "9", record: record("10")},
		"no view":                                       {view: "", record: record("1")},
		"a required version that is no resourceVersion": {view: "10", record: record("soon")},
		"a view that is no resourceVersion":             {view: "now", record: record("1")},
		"a view that shows a reserved pod":              {view: "10", record: record("", "p", "10"), want: true},
		"a view from before a reserved pod was":         {view: "9", record: record("3", "p", "10")},
		"a view from before one of the reserved pods":   {view: "9", record: record("3", "p", "8", "q", "10")},
		"a reserved pod that has no resourceVersion":    {view: "9", record: record("3", "p", "")},
		"numbers are compared as numbers, of any size":  {view: "100000000000000000000", record: record("99999999999999999999"), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := permit.Reaches(tc.view, tc.record); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

func TestNextRecord(t *testing.T) {
	for name, tc := range map[string]struct {
		old      *appsv1alpha1.PermitRecord
		reserved []appsv1alpha1.ReservedPod
		pods     pods
		want     *appsv1alpha1.PermitRecord
	}{
		"the first record requires nothing beyond its pods": {
			reserved: list("p", "10"), pods: pods{"p": "10"}, want: record("", "p", "10"),
		},
		"nothing to record where there was no record": {pods: pods{"p": "10"}},
		"a pod that stays reserved needs no evidence": {
			old: record("5", "p", "10"), reserved: list("p", "10", "q", "12"), pods: pods{"p": "10", "q": "12"},
			want: record("5", "p", "10", "q", "12"),
		},
		"a pod with a newer version is dropped on the evidence of its new version": {
			old: record("5", "p", "10"), reserved: list("q", "12"), pods: pods{"p": "14", "q": "12"},
			want: record("14", "q", "12"),
		},
		"a pod that is gone is dropped on the evidence of the whole view": {
			old: record("5", "p", "10"), reserved: list("q", "12"), pods: pods{"q": "12"},
			want: record("20", "q", "12"),
		},
		"a pod that is reserved again is dropped at its old version": {
			old: record("5", "p", "10"), reserved: list("p", "15"), pods: pods{"p": "15"},
			want: record("15", "p", "15"),
		},
		"the latest evidence counts": {
			old: record("5", "p", "10", "q", "11"), pods: pods{"p": "19", "q": "9"},
			want: record("19"),
		},
		"the required version never decreases": {
			old: record("17", "p", "10"), pods: pods{"p": "14"}, want: record("17"),
		},
		"a required version that cannot be compared is replaced by one that can": {
			old: record("soon", "p", "10"), pods: pods{"p": "14"}, want: record("14"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, permit.NextRecord(tc.old, appsv1alpha1.PermitRecord{Reserved: tc.reserved}, tc.pods.at, "20")); diff != "" {
				t.Errorf("record differs (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNextRecordDropsNothingUnseen ties the three together: a leader that may act on the next
// record has seen that every reservation it dropped is dead.
func TestNextRecordDropsNothingUnseen(t *testing.T) {
	old := record("", "p", "10", "q", "11")
	next := permit.NextRecord(old, appsv1alpha1.PermitRecord{Reserved: list("q", "11")}, pods{"p": "14", "q": "11"}.at, "20")
	for view, want := range map[string]bool{"10": false, "13": false, "14": true, "20": true} {
		if got := permit.Reaches(view, next); got != want {
			t.Errorf("a view up to %s: got %t, want %t", view, got, want)
		}
	}
}
