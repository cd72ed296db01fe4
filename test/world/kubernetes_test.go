package world_test

import (
	"strings"
	"testing"
	"time"

	"github.com/podops-dev/podops/test/world"
)

// TestKubernetesAlone plays each kind of workload without PodOps: the laws of the end hold, and a quiet hour costs few
// requests.
func TestKubernetesAlone(t *testing.T) {
	s := world.Schedule{Seed: 1, Nodes: 3, Length: time.Hour}
	for _, kind := range []world.Kind{
		world.Deployment, world.ReplicaSet, world.StatefulSet, world.DaemonSet, world.Job, world.Fleet, world.Rollout, world.Group,
	} {
		s.Workloads = append(s.Workloads, world.Workload{Kind: kind, Name: strings.ToLower(string(kind)), Replicas: 3, Labels: world.None})
	}
	if testing.Short() {
		s.Length = 10 * time.Minute
	}
	began := time.Now()
	verdict := play(t, s)
	if len(verdict.Violations) > 0 {
		t.Error(describe(s, verdict))
	}
	t.Logf("%d writes in %s of virtual time, %s of the machine", verdict.Writes, verdict.Took.Truncate(time.Second), time.Since(began))
}
