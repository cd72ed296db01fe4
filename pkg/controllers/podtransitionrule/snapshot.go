package podtransitionrule

import (
	"cmp"
	"context"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/permit"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/state/podindex"
)

// snapshot is the input of a round.
type snapshot struct {
	evaluation.Snapshot

	// state is the state after earlier rounds.
	state *namespaceState
}

// snapshot returns a snapshot of a namespace. While the watch has not delivered the pods that a record
// requires it returns how soon to try again; else 0.
func (r *Reconciler) snapshot(ctx context.Context, turn *turn, namespace string) (s snapshot, wait time.Duration) {
	now := r.clock.Now()
	r.index.Expire(now)
	s.state = r.state.namespace(namespace)
	take := func(needsPods func(*appsv1alpha1.PodTransitionRule) bool) podindex.Snapshot {
		return r.index.Snapshot(namespace, needsPods)
	}
	s.Snapshot = r.evaluator.Prepare(ctx, turn.Turn, s.state.evaluation, take)
	if s.ResourceVersion == "" {
		return s, evaluation.RetryStale
	}
	if stale := s.state.stale(s.Snapshot.Snapshot, now); stale != "" {
		ctrllog.FromContext(ctx).V(1).Info("Waiting for the pod cache to catch up", "record", stale, "seen", s.ResourceVersion)
		return s, evaluation.RetryStale
	}
	s.Snapshot = s.WithMissing(s.state.evaluation, now)
	return s, 0
}

// stale returns the name of a budget whose record requires a later view of the pods, ""
// without such a budget.
func (n *namespaceState) stale(view podindex.Snapshot, now time.Time) string {
	stale := ""
	for name, record := range view.Records() {
		pending := &n.record(name).pendingView
		if permit.Reaches(view.ResourceVersion, record) {
			*pending = pendingView{}
			continue
		}
		if pending.record == nil || !apiequality.Semantic.DeepEqual(pending.record, record) {
			*pending = pendingView{record: record, since: now}
		}
		if now.Sub(pending.since) < viewTimeout {
			stale = cmp.Or(stale, name)
		}
	}
	return stale
}
