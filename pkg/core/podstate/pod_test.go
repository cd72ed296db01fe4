package podstate_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/test/builders"
)

func TestAvailable(t *testing.T) {
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"marked and Ready":                         {pod: builders.MakePod("p").Available().Obj(), want: true},
		"marked and Ready, waiting":                {pod: builders.MakePod("p").Available().Waiting("a", "upgrade", builders.Epoch).Obj(), want: true},
		"a pod that was just created":              {pod: builders.MakePod("p").Obj()},
		"Ready and not marked":                     {pod: builders.MakePod("p").Gate(true).Ready().Obj()},
		"marked and not Ready":                     {pod: builders.MakePod("p").Available().Unready(builders.Epoch).Obj()},
		"marked and kept unready by a gate":        {pod: builders.MakePod("p").Available().UnreadyByGate(builders.Epoch).Obj()},
		"marked and without conditions":            {pod: builders.MakePod("p").Label(appsv1alpha1.ServiceAvailableLabelKey, "1").Obj()},
		"terminating":                              {pod: builders.MakePod("p").Available().Terminating(builders.Epoch).Obj()},
		"failed":                                   {pod: builders.MakePod("p").Available().Phase(corev1.PodFailed).Obj()},
		"succeeded":                                {pod: builders.MakePod("p").Available().Phase(corev1.PodSucceeded).Obj()},
		"running":                                  {pod: builders.MakePod("p").Available().Phase(corev1.PodRunning).Obj(), want: true},
		"marked with an empty value, which is one": {pod: builders.MakePod("p").Available().Label(appsv1alpha1.ServiceAvailableLabelKey, "").Obj(), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := podstate.Available(tc.pod); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}
