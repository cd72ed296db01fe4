package podtransitionrule

import (
	"cmp"
	"context"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/podops-dev/podops/pkg/permit"
	"github.com/podops-dev/podops/pkg/podindex"
)

// snapshot is the input of a round: a namespace at one moment, and its rules, ready to be evaluated.
type snapshot struct {
	podindex.Snapshot

	// prepared are the rules by PodTransitionRule.
	prepared map[string][]*preparedRule

	// state is what earlier rounds have left.
	state *namespaceState

	// retry is the delay after which the counts change by themselves; 0 for never.
	retry time.Duration
}

// snapshot returns a snapshot of a namespace. While the watch has not delivered the pods that a record
// requires it returns how soon to try again; else 0. The snapshot has all pods for the rules that read them.
func (r *Reconciler) snapshot(ctx context.Context, turn *turn, namespace string) (s snapshot, wait time.Duration) {
	now := r.clock.Now()
	r.index.Expire(now)
	s.state = r.state.of(namespace)
	for {
		s.Snapshot = r.index.Snapshot(namespace, s.state.needsPods)
		s.prepared = map[string][]*preparedRule{}
		missing := false
		for _, view := range s.Rules {
			known := s.state.needsPods(view.Object)
			s.prepared[view.Object.Name] = r.programs.of(ctx, turn, s.state, view.Object, s.Policies)
			missing = missing || !known && s.state.needsPods(view.Object)
		}
		if !missing || ctx.Err() != nil {
			break
		}
	}
	if s.ResourceVersion == "" {
		return s, retryStale
	}
	if stale := s.state.stale(s.Snapshot, now); stale != "" {
		ctrllog.FromContext(ctx).V(1).Info("Waiting for the pod cache to catch up", "podTransitionRule", stale, "seen", s.ResourceVersion)
		return s, retryStale
	}
	s.Rules, s.retry = s.state.countMissing(s.Rules, now)
	return s, 0
}

// stale returns the name of a PodTransitionRule whose record requires a later view of the pods, "" when
// there is none.
func (n *namespaceState) stale(view podindex.Snapshot, now time.Time) string {
	stale := ""
	for _, rule := range view.Rules {
		pending, record := &n.of(rule.Object.Name).pendingView, rule.Object.Status.Permits
		if permit.Reaches(view.ResourceVersion, record) {
			*pending = pendingView{}
			continue
		}
		if pending.record == nil || !apiequality.Semantic.DeepEqual(pending.record, record) {
			*pending = pendingView{record: record, since: now}
		}
		if now.Sub(pending.since) < viewTimeout {
			stale = cmp.Or(stale, rule.Object.Name)
		}
	}
	return stale
}
