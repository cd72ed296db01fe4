package resourceconsist_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/test/builders"
)

func TestStatusesOfPods(t *testing.T) {
	addressed := func(b *builders.PodBuilder) *corev1.Pod {
		pod := b.Obj()
		pod.Status.PodIP = "10.0.0.1"
		pod.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "no address"}, {IP: "fd00::1"}}
		return pod
	}
	for sentence, tc := range map[string]struct {
		pod  *corev1.Pod
		want resourceconsist.PodEmployeeStatuses
	}{
		"a pod that takes traffic": {
			addressed(builders.MakePod("a").Available()),
			resourceconsist.PodEmployeeStatuses{Ip: "10.0.0.1", Ipv6: "fd00::1", LifecycleReady: true},
		},
		"a preparing pod must lose its traffic while it is still ready": {
			addressed(builders.MakePod("a").Ready().Preparing("x", "update")),
			resourceconsist.PodEmployeeStatuses{Ip: "10.0.0.1", Ipv6: "fd00::1"},
		},
		"a pod without an address": {builders.MakePod("a").Obj(), resourceconsist.PodEmployeeStatuses{}},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, err := resourceconsist.GetCommonPodEmployeeStatus(tc.pod)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("statuses (-want +got):\n%s", diff)
			}
			kept := resourceconsist.PodEmployeeStatuses{Ip: "old", ExtraStatus: 7}
			tc.want.ExtraStatus = 7
			if err := resourceconsist.SetCommonPodEmployeeStatus(&kept, tc.pod); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, kept); diff != "" {
				t.Errorf("statuses that were set (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStatusesOfNothingAreAnError(t *testing.T) {
	if _, err := resourceconsist.GetCommonPodEmployeeStatus(nil); err == nil {
		t.Error("no error for a nil pod")
	}
	if err := resourceconsist.SetCommonPodEmployeeStatus(nil, builders.MakePod("a").Obj()); err == nil {
		t.Error("no error for nil statuses")
	}
}
