package lifecycle_test

import (
	"testing"
	"time"

	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/test/builders"
)

func TestExpectsTraffic(t *testing.T) {
	now := builders.Epoch.Add(time.Hour)
	for sentence, tc := range map[string]struct {
		pod  *builders.PodBuilder
		want bool
	}{
		"a pod that serves":                                      {builders.MakePod("a").Available(), true},
		"a pod that waits for its rules":                         {builders.MakePod("a").Available().Waiting("x", "update", now), true},
		"a pod that prepares":                                    {builders.MakePod("a").Available().Preparing("x", "update"), false},
		"a pod that prepares under the other label":              {builders.MakePod("a").Available().Label("preparing.podopslifecycle.kusionstack.io/x", "1"), false},
		"a pod that is operated on":                              {builders.MakePod("a").Available().Allowed("x", "update"), false},
		"a pod that waits for its rules after the operation":     {builders.MakePod("a").Gate(false).UnreadyByGate(now).Finished("x", "update", now), false},
		"a complete pod that the kubelet has not yet made Ready": {builders.MakePod("a").Gate(true).UnreadyByGate(now).Complete("x", "update"), true},
		"a pod that is not ready":                                {builders.MakePod("a").Gate(true).Unready(now), false},
		"a pod that the user keeps offline":                      {builders.MakePod("a").Available().StayOffline(), false},
		"a pod that terminates":                                  {builders.MakePod("a").Available().Terminating(now), false},
		"a ready pod without the gate":                           {builders.MakePod("a").Gateless().Ready(), true},
		"a ready pod that is not under PodOps":                   {builders.MakePod("a").Uncontrolled().Ready(), true},
		"an unready pod that is not under PodOps":                {builders.MakePod("a").Uncontrolled().Unready(now), false},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := lifecycle.NewPodFacts(tc.pod.Obj()).ExpectsTraffic(); got != tc.want {
				t.Errorf("ExpectsTraffic = %v, want %v", got, tc.want)
			}
		})
	}
}
