package rolloutview_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podops-dev/podops/pkg/view/rolloutview"
	"github.com/podops-dev/podops/test/builders"
)

func TestPhaseOf(t *testing.T) {
	pod := func() *builders.PodBuilder { return builders.MakePod("p") }
	unreadySinceCreation := pod().Available().Unready(at(1)).Obj()
	unreadySinceCreation.CreationTimestamp = metav1.NewTime(at(1))
	for name, tc := range map[string]struct {
		pod   *corev1.Pod
		want  rolloutview.Phase
		since time.Time
	}{
		"a new pod":                       {pod: pod().Obj(), want: rolloutview.PhaseStarting},
		"available":                       {pod: pod().Available().Obj(), want: rolloutview.PhaseAvailable, since: builders.Epoch},
		"available before, not Ready now": {pod: pod().Available().Unready(at(3)).Obj(), want: rolloutview.PhaseNotReady, since: at(3)},
		"marked available, not Ready yet": {pod: pod().Available().Unready(at(-3)).Obj(), want: rolloutview.PhaseStarting},
		"marked available in the second of its creation": {pod: unreadySinceCreation, want: rolloutview.PhaseStarting, since: at(1)},
		"waiting for PreCheck rules":                     {pod: pod().Available().Waiting("a", "upgrade", at(4)).Obj(), want: rolloutview.PhasePreCheck, since: at(4)},
		"permitted":                                      {pod: pod().Preparing("a", "upgrade").Obj(), want: rolloutview.PhasePreparing, since: builders.Epoch},
		"operating":                                      {pod: pod().Allowed("a", "upgrade").Obj(), want: rolloutview.PhaseOperating, since: builders.Epoch},
		"waiting for PostCheck rules":                    {pod: pod().Finished("a", "upgrade", at(5)).Obj(), want: rolloutview.PhasePostCheck, since: at(5)},
		"completing":                                     {pod: pod().Complete("a", "upgrade").Obj(), want: rolloutview.PhaseCompleting, since: builders.Epoch},
		"the furthest of two operations":                 {pod: pod().Waiting("a", "upgrade", at(4)).Allowed("b", "restart").Obj(), want: rolloutview.PhaseOperating, since: builders.Epoch},
		"kept offline":                                   {pod: pod().StayOffline().Obj(), want: rolloutview.PhaseOffline},
		"terminating":                                    {pod: pod().Available().Terminating(at(6)).Obj(), want: rolloutview.PhaseTerminating, since: at(6)},
		"failed":                                         {pod: pod().Phase(corev1.PodFailed).Obj(), want: rolloutview.PhaseFinished},
		"Ready, not under PodOps":                        {pod: pod().Uncontrolled().ReadySince(at(7)).Obj(), want: rolloutview.PhaseAvailable, since: at(7)},
	} {
		t.Run(name, func(t *testing.T) {
			got, since := rolloutview.PodPhase(tc.pod)
			if got != tc.want || !since.Equal(tc.since) {
				t.Errorf("got %s since %s, want %s since %s", got, since, tc.want, tc.since)
			}
		})
	}
}
