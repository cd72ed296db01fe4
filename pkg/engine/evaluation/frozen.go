package evaluation

import (
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// holdFrozen withholds every request that waits in PreCheck while the whole cluster is frozen.
func (w *evaluating) holdFrozen(snapshot Snapshot, now time.Time) {
	if w.Frozen == "" {
		return
	}
	id := rule.FreezeID(snapshot.Namespace)
	for _, request := range snapshot.Waiting {
		if request.Stage != appsv1alpha1.StagePreCheck {
			continue
		}
		if exception, text := w.exceptions.exceptionFor(nil, request); exception != "" {
			w.waive(w.turn, request, rule.Waiver{Rule: id, Code: rule.CodeFrozen, Exception: exception, Reason: text})
			continue
		}
		w.withholdFor(w.turn, request, rule.Reason{
			Rule: id, Kind: rule.KindFreeze, Stage: request.Stage, Code: rule.CodeFrozen, Since: request.Since,
			NextCheck: snapshot.Freeze.Until, Message: snapshot.Freeze.Message,
		})
		if !snapshot.Freeze.Until.IsZero() {
			w.retryIn(max(snapshot.Freeze.Until.Sub(now), time.Millisecond))
		}
	}
}
