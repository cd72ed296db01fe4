package offline

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/runtime/lanes"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/pkg/webhookrule/webhookclient"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask/dispatch"
)

// Options configures an evaluation. Engine and Now must be set.
type Options struct {
	Engine *opa.Engine

	// Now is the time of the decision.
	Now time.Time

	// Answers are the answers of webhook rules' services.
	Answers []Answer

	// Hold is the bound of the manager's holds.
	Hold evaluation.Hold

	// Prepared is called with each module that is evaluated; nil: not called.
	Prepared func(spec.Module)
}

// Evaluate evaluates the rules of all namespaces for the pods that wait, and returns the verdicts sorted by
// namespace, pod, stage and id, with an entry for each other pod.
func Evaluate(ctx context.Context, objects Objects, options Options) ([]Verdict, error) {
	var verdicts []Verdict
	for _, namespace := range objects.NamespacesOfPods() {
		found, err := evaluateNamespace(ctx, objects, namespace, options)
		if err != nil {
			return nil, fmt.Errorf("namespace %s: %w", namespace, err)
		}
		verdicts = append(verdicts, found...)
	}
	return verdicts, nil
}

func evaluateNamespace(ctx context.Context, objects Objects, namespace string, options Options) ([]Verdict, error) {
	view, outcome, err := round(ctx, objects, namespace, options)
	if err != nil {
		return nil, err
	}
	if len(options.Answers) > 0 {
		if answered := answer(objects, view, outcome, options); answered != nil {
			if view, outcome, err = round(ctx, *answered, namespace, options); err != nil {
				return nil, err
			}
		}
	}
	var verdicts []Verdict
	waits := map[string]bool{}
	for _, request := range view.Waiting {
		waits[request.Pod.Name] = true
		verdicts = append(verdicts, newVerdict(outcome, request))
	}
	for _, pod := range objects.Pods {
		if pod.Namespace == namespace && !waits[pod.Name] {
			verdicts = append(verdicts, idle(pod))
		}
	}
	slices.SortFunc(verdicts, func(a, b Verdict) int {
		return cmp.Or(cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.ID, b.ID))
	})
	return verdicts, nil
}

// Bounds of a round. It has no other namespace to be fair to, and no pod waits for it.
const (
	roundBudget = time.Hour
	roundMemory = 1 << 30
)

// round makes one round in a namespace.
func round(ctx context.Context, objects Objects, namespace string, options Options) (evaluation.Snapshot, evaluation.Outcome, error) {
	index, err := objects.index(options.Now)
	if err != nil {
		return evaluation.Snapshot{}, evaluation.Outcome{}, err
	}
	index.Expire(options.Now)
	now := frozen{options.Now}
	evaluator := evaluation.New(evaluation.Config{
		Engine: evaluation.NewEngine(options.Engine), Prepared: options.Prepared,
		RejectionRetry: webhooktask.DefaultRejectionRetry, Hold: options.Hold,
	})
	paced := lanes.New(lanes.Options{Rate: math.MaxInt32})
	lane, _ := paced.Enter(namespace, options.Now)
	turn := evaluation.NewTurn(evaluation.TurnOptions{
		Namespace: namespace, Clock: now, Lanes: paced, Lane: lane, Budget: roundBudget, Memory: roundMemory, Remember: roundMemory,
		Governed: func() bool { return true },
	})
	defer turn.End()
	state := evaluation.NewState()
	snapshot := evaluator.Prepare(ctx, turn, state, func(needsPods func(*appsv1alpha1.PodTransitionRule) bool) podindex.Snapshot {
		return index.Snapshot(namespace, needsPods)
	})
	snapshot = snapshot.WithMissing(state, options.Now)
	modules := evaluator.EvaluateModules(ctx, turn, snapshot, options.Now)
	evaluated := evaluator.Evaluate(ctx, turn, snapshot, state, modules, evaluation.Calls{}, options.Now)
	evaluated.OpenCalls(func(rule.RuleID, dispatch.Service) (bool, *webhookclient.Failure) { return false, nil })
	allocated := evaluated.Allocate(ctx, turn, options.Now)
	if err := ctx.Err(); err != nil {
		return evaluation.Snapshot{}, evaluation.Outcome{}, err
	}
	return snapshot, evaluation.Outcome{Evaluation: evaluated, Allocation: allocated}, nil
}

// frozen is a clock whose time does not change.
type frozen struct{ at time.Time }

// Now implements clock.PassiveClock.
func (f frozen) Now() time.Time { return f.at }

// Since implements clock.PassiveClock.
func (f frozen) Since(then time.Time) time.Duration { return f.at.Sub(then) }

// State is the state of a pod that all verdicts together result in.
type State string

// The states of a pod.
const (
	// Permitted means that the pod gets its permit.
	Permitted State = "Permitted"

	// Withheld means that the pod waits.
	Withheld State = "Withheld"

	// NeedsService means that the pod waits for nothing but services of webhook rules, which are not called.
	NeedsService State = "NeedsService"

	// NotWaiting means that no lifecycle of the pod waits for rules.
	NotWaiting State = "NotWaiting"
)

// Verdict is the result of all rules for one request of a pod.
type Verdict struct {
	Namespace string                       `json:"namespace"`
	Pod       string                       `json:"pod"`
	Stage     appsv1alpha1.TransitionStage `json:"stage,omitempty"`

	// ID and Operation are the id and the type of the lifecycle.
	ID        string `json:"id,omitempty"`
	Operation string `json:"operation,omitempty"`

	State State `json:"state"`

	// Message is why no lifecycle of the pod waits; empty for other states.
	Message string `json:"message,omitempty"`

	// Rules are the verdicts of the stage's rules, sorted by name.
	Rules []RuleVerdict `json:"rules,omitempty"`
}

// RuleVerdict is the verdict of one rule.
type RuleVerdict struct {
	// Rule is "<PodTransitionRule>/<rule>", or "PodDisruptionBudget/<name>".
	Rule        string                   `json:"rule"`
	Kind        rule.Kind                `json:"kind,omitempty"`
	Enforcement appsv1alpha1.Enforcement `json:"enforcement,omitempty"`

	State evaluation.VerdictState `json:"state"`

	// Code and Message are why the rule withholds the pod, or would, or why the pod is exempt.
	Code    rule.Code `json:"code,omitempty"`
	Message string    `json:"message,omitempty"`

	Details      json.RawMessage `json:"details,omitempty"`
	BlockingPods []string        `json:"blockingPods,omitempty"`

	// NeedsService reports whether the service of the rule would be called now.
	NeedsService bool `json:"needsService,omitempty"`
}

func newVerdict(outcome evaluation.Outcome, request rule.Request) Verdict {
	verdict := Verdict{
		Namespace: request.Pod.Namespace, Pod: request.Pod.Name, Stage: request.Stage, ID: request.ID, Operation: request.Type, State: Withheld,
	}
	services, others := false, false
	for _, found := range outcome.Verdicts(request) {
		made := RuleVerdict{Rule: found.ID.String(), Kind: found.Kind, State: found.State, NeedsService: found.Calls}
		if found.Rule != nil {
			made.Enforcement = found.Rule.Enforcement()
		}
		switch {
		case found.Reason != nil:
			made.Code, made.Message, made.BlockingPods = found.Reason.Code, found.Reason.Message, found.Reason.BlockingPods
			if found.Reason.Details != "" {
				made.Details = json.RawMessage(found.Reason.Details)
			}
		case found.Waiver != nil:
			made.Code, made.Message = found.Waiver.Code, fmt.Sprintf("%s %s", found.Waiver.Exception, found.Waiver.Reason)
		}
		if found.State == evaluation.VerdictWithheld {
			services = services || found.Calls
			others = others || !found.Calls
		}
		verdict.Rules = append(verdict.Rules, made)
	}
	switch {
	case outcome.IsPermitted(request.Key()):
		verdict.State = Permitted
	case services && !others:
		verdict.State = NeedsService
	}
	return verdict
}

// idle returns the entry of a pod without a lifecycle that waits.
func idle(pod *corev1.Pod) Verdict {
	verdict := Verdict{Namespace: pod.Namespace, Pod: pod.Name, State: NotWaiting, Message: "no lifecycle of the pod waits for rules"}
	switch {
	case pod.DeletionTimestamp != nil:
		verdict.Message = "the pod is terminating"
	case podstate.Finished(pod):
		verdict.Message = fmt.Sprintf("the pod has finished: its phase is %s", pod.Status.Phase)
	case !appsv1alpha1.IsControlled(pod.Labels):
		verdict.Message = fmt.Sprintf("the pod is not under PodOps: it has no label %s=%s", appsv1alpha1.ControlLabelKey, appsv1alpha1.ControlLabelValue)
	}
	return verdict
}
