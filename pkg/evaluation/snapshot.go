package evaluation

import (
	"context"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/backoff"
	"github.com/podops-dev/podops/pkg/podindex"
)

// Snapshot is the input of an evaluation: a namespace at one moment, and its rules, ready to be evaluated.
type Snapshot struct {
	podindex.Snapshot

	// Retry is the delay after which the counts change with time alone; 0 for never.
	Retry time.Duration

	// prepared are the rules by PodTransitionRule.
	prepared map[string][]*preparedRule
}

// Prepare returns a snapshot with the rules of a namespace compiled. take takes a snapshot of the pod index,
// with all pods for the PodTransitionRules for which its argument returns true because they read pods. It is
// called again if a rule turns out to read them.
func (e *Evaluator) Prepare(
	ctx context.Context, t *Turn, state *State, take func(needsPods func(*appsv1alpha1.PodTransitionRule) bool) podindex.Snapshot,
) Snapshot {
	s := Snapshot{}
	for {
		s.Snapshot, s.prepared = take(state.needsPods), map[string][]*preparedRule{}
		missing := false
		for _, view := range s.Rules {
			known := state.needsPods(view.Object)
			s.prepared[view.Object.Name] = e.rulesOf(ctx, t, state, view.Object, s.Policies)
			for _, prepared := range s.prepared[view.Object.Name] {
				prepared.lift(view.Object)
			}
			missing = missing || !known && state.needsPods(view.Object)
		}
		if !missing || ctx.Err() != nil {
			return s
		}
	}
}

// WithMissing returns the snapshot with the pods counted as desired that workloads miss, and with the delay after
// which a count changes.
func (s Snapshot) WithMissing(state *State, now time.Time) Snapshot {
	s.Rules, s.Retry = state.countMissing(s.Rules, now)
	if !s.Ripens.IsZero() {
		s.Retry = backoff.MinDelay(s.Retry, max(time.Millisecond, s.Ripens.Sub(now)))
	}
	return s
}
