package podwriter

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/test/builders"
)

func TestVersions(t *testing.T) {
	at := func(uid, version string) *corev1.Pod {
		pod := builders.MakePod("web-0").UID(types.UID(uid)).Obj()
		pod.ResourceVersion = version
		return pod
	}
	noted := NewVersions(StaleFor)
	noted.Note(at("a", "9"), builders.Epoch)
	for name, tc := range map[string]struct {
		pod             *corev1.Pod
		after           time.Duration
		has, any, later bool
	}{
		"the same version":                        {pod: at("a", "9"), has: true, any: true},
		"a newer version":                         {pod: at("a", "10"), any: true},
		"an older version":                        {pod: at("a", "8"), any: true, later: true},
		"a version that is not a number":          {pod: at("a", "x"), any: true},
		"another pod of its name":                 {pod: at("b", "9")},
		"the same version just before it expires": {pod: at("a", "9"), after: StaleFor - 1, has: true, any: true},
		"the same version after it expired":       {pod: at("a", "9"), after: StaleFor},
		"an older version after it expired":       {pod: at("a", "8"), after: StaleFor},
	} {
		t.Run(name, func(t *testing.T) {
			now := builders.Epoch.Add(tc.after)
			if got := noted.Has(tc.pod, now); got != tc.has {
				t.Errorf("has: %v, want %v", got, tc.has)
			}
			if got := noted.HasAny(tc.pod.UID, now); got != tc.any {
				t.Errorf("has any: %v, want %v", got, tc.any)
			}
			if got := noted.HasLater(tc.pod, now); got != tc.later {
				t.Errorf("has a later one: %v, want %v", got, tc.later)
			}
		})
	}
}

// TestVersionsExpire shows that deleted pods do not pile up.
func TestVersionsExpire(t *testing.T) {
	noted := NewVersions(StaleFor)
	for i := range 1000 {
		noted.Note(builders.MakePod("p").UID(types.UID(fmt.Sprint(i))).Obj(), builders.Epoch.Add(time.Duration(i)*StaleFor))
	}
	if got := len(noted.noted); got > 2 {
		t.Errorf("%d pods are kept, want the last two at most", got)
	}
}
