package podwriter

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/test/builders"
)

func TestStaleVersions(t *testing.T) {
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
		"the same version":                        {pod: at("a", "1"), want: true},
		"a newer version":                         {pod: at("a", "2")},
		"another pod of its name":                 {pod: at("b", "1")},
		"the same version just before it expires": {pod: at("a", "1"), after: StaleFor - 1, want: true},
		"the same version after it expired":       {pod: at("a", "1"), after: StaleFor},
	} {
		t.Run(name, func(t *testing.T) {
			if got := noted.Has(tc.pod, builders.Epoch.Add(tc.after)); got != tc.want {
				t.Errorf("stale: %v, want %v", got, tc.want)
			}
		})
	}
	if (&StaleVersions{}).Has(at("a", "1"), builders.Epoch) {
		t.Error("a pod without a conflict is stale")
	}
}

// TestStaleVersionsExpire shows that deleted pods do not pile up.
func TestStaleVersionsExpire(t *testing.T) {
	noted := StaleVersions{}
	for i := range 1000 {
		noted.Note(builders.MakePod("p").UID(types.UID(fmt.Sprint(i))).Obj(), builders.Epoch.Add(time.Duration(i)*StaleFor))
	}
	if got := len(noted.versions.noted); got > 2 {
		t.Errorf("%d pods are kept, want the last two at most", got)
	}
}
