package podwriter

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/test/builders"
)

func TestMovedOn(t *testing.T) {
	at := func(uid, version string) *corev1.Pod {
		pod := builders.MakePod("web-0").UID(types.UID(uid)).Obj()
		pod.ResourceVersion = version
		return pod
	}
	noted := StaleVersions{}
	noted.Note(at("a", "1"), builders.Epoch)
	for name, tc := range map[string]struct {
		pod   *corev1.Pod
		after time.Duration
		want  bool
	}{
		"the pod as it was":       {pod: at("a", "1"), want: true},
		"a newer one":             {pod: at("a", "2")},
		"another one of its name": {pod: at("b", "1")},
		"the pod as it was, a moment before it is forgotten": {pod: at("a", "1"), after: MovedOnFor - 1, want: true},
		"the pod as it was, for so long that it may be so":   {pod: at("a", "1"), after: MovedOnFor},
	} {
		t.Run(name, func(t *testing.T) {
			if got := noted.Has(tc.pod, builders.Epoch.Add(tc.after)); got != tc.want {
				t.Errorf("moved on: %v, want %v", got, tc.want)
			}
		})
	}
	if (&StaleVersions{}).Has(at("a", "1"), builders.Epoch) {
		t.Error("a pod has moved on that nobody wrote to")
	}
}

// TestMovedOnIsForgotten: pods that are gone are never asked about again.
func TestMovedOnIsForgotten(t *testing.T) {
	noted := StaleVersions{}
	for i := range 1000 {
		noted.Note(builders.MakePod("p").UID(types.UID(fmt.Sprint(i))).Obj(), builders.Epoch.Add(time.Duration(i)*MovedOnFor))
	}
	if got := len(noted.at); got > 2 {
		t.Errorf("%d pods are remembered, want the last two at most", got)
	}
}
