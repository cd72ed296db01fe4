package podrelease

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// TestAManagerOutsideOfTheClusterIsFound shows what counts as a manager that Run cannot stop.
func TestAManagerOutsideOfTheClusterIsFound(t *testing.T) {
	deployment := func(replicas int32) *appsv1.Deployment {
		return &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "podops-system", Name: appsv1alpha1.ManagerName}, Spec: appsv1.DeploymentSpec{Replicas: &replicas},
		}
	}
	for sentence, tc := range map[string]struct {
		objects []client.Object
		renewed time.Duration // how long ago
		holder  string
		renews  bool
		found   bool
		took    time.Duration
	}{
		"a manager without a Deployment":          {nil, time.Second, "host_1", true, true, 2 * time.Second},
		"a manager beside a Deployment of 0":      {[]client.Object{deployment(0)}, time.Second, "host_1", true, true, 2 * time.Second},
		"the manager of the Deployment":           {[]client.Object{deployment(2)}, time.Second, "pod_1", true, false, 0},
		"a manager that was killed":               {nil, time.Second, "host_1", false, false, renewPatience},
		"a manager that was killed some time ago": {nil, time.Minute, "host_1", false, false, 0},
		"a manager that has released its Lease":   {nil, time.Second, "", false, false, 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lease := &coordinationv1.Lease{
					ObjectMeta: metav1.ObjectMeta{Namespace: "podops-system", Name: appsv1alpha1.ManagerName},
					Spec: coordinationv1.LeaseSpec{
						HolderIdentity: &tc.holder, LeaseDurationSeconds: ptr.To(int32(15)), RenewTime: &metav1.MicroTime{Time: time.Now().Add(-tc.renewed)},
					},
				}
				r := runnerOf(t, Options{Namespace: "podops-system"}, append(tc.objects, lease)...)
				r.clock = clock.RealClock{}
				if tc.renews {
					time.AfterFunc(1500*time.Millisecond, func() {
						lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
						if err := r.client.Update(t.Context(), lease); err != nil {
							t.Error(err)
						}
					})
				}
				begin := time.Now()
				err := r.findManagerOutside(t.Context())
				if errors.Is(err, ErrManagerOutside) != tc.found || !tc.found && err != nil {
					t.Errorf("got %v", err)
				}
				if tc.found && !strings.Contains(err.Error(), "host_1 renews Lease podops-system/podops-controller-manager; end it") {
					t.Errorf("the error does not name the manager and its Lease: %v", err)
				}
				if took := time.Since(begin); took != tc.took {
					t.Errorf("took %v, want %v", took, tc.took)
				}
				time.Sleep(2 * time.Second) // The clock of the bubble: the renewal ends before the test does.
			})
		})
	}
}

func TestWithoutALeaseNoManagerIsOutside(t *testing.T) {
	if err := runnerOf(t, Options{Namespace: "podops-system"}).findManagerOutside(t.Context()); err != nil {
		t.Error(err)
	}
}
