package evaluation

import (
	"cmp"
	"slices"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/state/podindex"
)

// Evaluator evaluates the rules of namespaces. It has no state: that of a namespace is its State.
type Evaluator struct {
	engine         Engine
	prepared       func(spec.Module)
	rejectionRetry time.Duration
	hold           Hold
}

// Hold bounds the time for which rules hold back a delete or an eviction that PodOps defers.
type Hold struct {
	// Max is the bound; 0 is no bound.
	Max time.Duration

	// Action is the action on a request that is held for longer than Max; Undo if empty.
	Action appsv1alpha1.HoldAction
}

// boundFor returns the bound of a PodTransitionRule: its own, or else the receiver, which is the bound of the manager. object
// is nil for a PodDisruptionBudget, and for a PodTransitionRule that was deleted.
func (h Hold) boundFor(object *appsv1alpha1.PodTransitionRule) Hold {
	if object != nil {
		if own := object.Spec.MaxHold; own != nil {
			h.Max = own.Duration
		}
		h.Action = cmp.Or(object.Spec.OnMaxHold, h.Action)
	}
	h.Action = cmp.Or(h.Action, appsv1alpha1.HoldUndo)
	return h
}

// bounds reports whether a PodTransitionRule, or the manager, bounds holds.
func (h Hold) bounds(views []podindex.RuleView) bool {
	return h.Max > 0 || slices.ContainsFunc(views, func(view podindex.RuleView) bool { return view.Object.Spec.MaxHold != nil })
}

// isDeferred reports whether a request is for a delete or an eviction that PodOps defers.
func isDeferred(request rule.Request) bool {
	return request.Stage == appsv1alpha1.StagePreCheck && request.ID == appsv1alpha1.PodDeleteID && request.Type == appsv1alpha1.DeleteOperationType
}

// Config configures an Evaluator.
type Config struct {
	Engine Engine

	// Prepared is called with each module that is evaluated for a rule from now on; nil: not called.
	Prepared func(spec.Module)

	// RejectionRetry is the approximate delay after a denial until the service of a webhook rule is
	// called again.
	RejectionRetry time.Duration

	// Hold bounds the holds of the rules that have no bound of their own.
	Hold Hold
}

// New returns an Evaluator.
func New(c Config) *Evaluator {
	return &Evaluator{engine: c.Engine, prepared: c.Prepared, rejectionRetry: c.RejectionRetry, hold: c.Hold}
}
