package permit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/permit"
)

func TestEncode(t *testing.T) {
	for name, tc := range map[string]struct {
		record *appsv1alpha1.PermitRecord
		want   string
	}{
		"pods, without names": {record: record("7", "q", "12", "p", "10"), want: `{"viewResourceVersion":"7","reserved":{"p":"10","q":"12"}}`},
		"a view alone":        {record: record("7"), want: `{"viewResourceVersion":"7"}`},
		"nothing":             {record: record(""), want: `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := permit.Encode(tc.record); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestDecode(t *testing.T) {
	for name, tc := range map[string]struct {
		annotation string
		want       *appsv1alpha1.PermitRecord
	}{
		"no annotation":         {},
		"an empty record":       {annotation: `{}`, want: record("")},
		"pods in their order":   {annotation: `{"reserved":{"q":"12","p":"10"}}`, want: record("", "p", "10", "q", "12")},
		"a field of the future": {annotation: `{"viewResourceVersion":"7","color":"red"}`, want: record("7")},
		"a text":                {annotation: "yes"},
		"another type":          {annotation: `{"reserved":["p"]}`},
		"more pods than PodOps writes": {annotation: permit.Encode(full(func(i int) types.UID { return types.UID(fmt.Sprint(i)) },
			appsv1alpha1.MaxStatusReserved+1, "1"))},
		"more bytes than PodOps writes": {annotation: `{"viewResourceVersion":"` + strings.Repeat("7", permit.MaxAnnotationBytes) + `"}`},
	} {
		t.Run(name, func(t *testing.T) {
			got := permit.Decode(tc.annotation)
			if tc.want != nil {
				for i := range tc.want.Reserved {
					tc.want.Reserved[i].Name = ""
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("record differs (-want +got):\n%s", diff)
			}
		})
	}
}

// full returns a record with a number of pods.
func full(uid func(int) types.UID, pods int, version string) *appsv1alpha1.PermitRecord {
	r := &appsv1alpha1.PermitRecord{ViewResourceVersion: version}
	for i := range pods {
		r.Reserved = append(r.Reserved, appsv1alpha1.ReservedPod{UID: uid(i), ResourceVersion: version})
	}
	return r
}

// TestAFullRecordIsDecoded matters because a record that is too large to be read would be no record.
func TestAFullRecordIsDecoded(t *testing.T) {
	uid := func(i int) types.UID { return types.UID(fmt.Sprintf("2b1a0f6e-8a51-4c0e-9d53-%012d", i)) }
	want := full(uid, appsv1alpha1.MaxStatusReserved, "18446744073709551615")
	annotation := permit.Encode(want)
	if diff := cmp.Diff(want, permit.Decode(annotation)); diff != "" {
		t.Errorf("record of %d bytes differs (-want +got):\n%s", len(annotation), diff)
	}
}
