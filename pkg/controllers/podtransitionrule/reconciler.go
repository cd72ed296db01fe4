package podtransitionrule

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/core/tracing"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/runtime/backoff"
	"github.com/podops-dev/podops/pkg/runtime/lanes"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/pkg/webhookrule/webhookclient"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask/dispatch"
)

const (
	// viewTimeout is the time for which a record may require a view that no watch delivers. Bookmarks reach
	// every real resourceVersion within a minute or so; a record that requires more was not written by
	// PodOps, and must not stop it for ever. Permits rely on no watch being behind by this time while other
	// watches continue.
	viewTimeout = 5 * time.Minute

	// retryConflict is the delay of the next round after a conflict with another writer of a pod. Usually the
	// watch delivers the pod sooner.
	retryConflict = time.Second

	// defaultWritesAtOnce bounds the parallel requests of one round.
	defaultWritesAtOnce = 16
)

// DefaultBatchInterval is the interval between permit batches of one PodTransitionRule or PodDisruptionBudget. Each batch
// costs a write of its record: pods that become available one by one within a second share it, and an operation that takes
// many seconds is hardly delayed.
const DefaultBatchInterval = time.Second

// PodWriter writes a lifecycle change to a pod that is still at its resourceVersion.
type PodWriter interface {
	// Write returns a conflict if the pod has another resourceVersion by now.
	Write(ctx context.Context, pod *corev1.Pod, change lifecycle.Change) error

	// CaughtUp returns false while the pod is older than its last write.
	CaughtUp(pod *corev1.Pod) bool
}

// StatusWriter writes the status of a PodTransitionRule that is still at its
// resourceVersion, and returns the object as stored.
type StatusWriter interface {
	WriteStatus(ctx context.Context, object *appsv1alpha1.PodTransitionRule) (*appsv1alpha1.PodTransitionRule, error)
}

// BudgetWriter writes the permit record of a PodDisruptionBudget that is still at its
// resourceVersion, and returns the PodDisruptionBudget as stored.
type BudgetWriter interface {
	WriteRecord(ctx context.Context, budget podindex.DisruptionBudget, record *appsv1alpha1.PermitRecord) (podindex.DisruptionBudget, error)
}

// Caller makes the calls of webhook rules between rounds. It is a *dispatch.Dispatcher.
type Caller interface {
	// CircuitOpen returns the failure that a POST of a rule would have because the circuit breaker of the
	// service is open; nil when the POST would be made. It changes nothing.
	CircuitOpen(rule rule.RuleID, service dispatch.Service) *webhookclient.Failure

	// Admit is called before POSTs of a rule are recorded. It returns the failure of CircuitOpen, or reports
	// that the next POST is the probe of a half-open circuit breaker, which is reserved for that POST.
	Admit(rule rule.RuleID, service dispatch.Service) (probe bool, failure *webhookclient.Failure)

	// CountSkipped counts a POST of a rule that was not made because the circuit breaker is open.
	CountSkipped(rule rule.RuleID, service dispatch.Service, failure *webhookclient.Failure)

	// Call starts a call. It never blocks; a call that cannot be started has a failure as its result.
	Call(ctx context.Context, call dispatch.Call)

	// Forget drops the calls of a deleted rule.
	Forget(rule rule.RuleID)
}

// Reconciler evaluates the rules of one namespace at a time, and grants permits to its pods.
type Reconciler struct {
	index     *podindex.Index
	nodes     nodeWatch
	evaluator *evaluation.Evaluator
	pods      PodWriter
	statuses  StatusWriter
	budgets   BudgetWriter
	recorder  events.EventRecorder
	options   lifecycle.Options
	metrics   *Metrics
	caller    Caller
	undo      Undoer

	// traced returns the lifecycles of requests whose traces are exported; nil: none are.
	traced func([]rule.Request) []tracing.Lifecycle

	// managerNamespace is the namespace whose break-glass annotation applies to the whole cluster.
	managerNamespace string

	wake  func(namespace string)
	clock clock.PassiveClock

	// workers are shared between namespaces by lanes; budget bounds each round.
	workers int
	lanes   *lanes.Lanes
	budget  time.Duration

	// roundBytes bounds the findings of one round.
	roundBytes int64

	// batchInterval is the interval between batches of a record.
	batchInterval time.Duration

	// writesAtOnce bounds the parallel requests of one round.
	writesAtOnce int

	// background admits one low-priority write at a time across all namespaces (slot).
	background sync.Mutex

	state *state
}

// Config configures a Reconciler. All fields but InFlight, Hold, ManagerNamespace, Workers,
// RoundBudget, Memory, BatchInterval, Prepared and RejectionRetry must be set.
type Config struct {
	Index    *podindex.Index
	Engine   evaluation.Engine
	Pods     PodWriter
	Statuses StatusWriter
	Budgets  BudgetWriter
	Recorder events.EventRecorder
	Options  lifecycle.Options
	Metrics  *Metrics
	Clock    clock.PassiveClock

	// Caller makes the calls of webhook rules, and keeps their results in InFlight.
	Caller   Caller
	InFlight *dispatch.InFlight

	// Undo cancels operations that were held for as long as Hold, or their rules, permit.
	Undo Undoer
	Hold evaluation.Hold

	// ManagerNamespace is the namespace whose break-glass annotation applies to the whole cluster; empty: no
	// namespace.
	ManagerNamespace string

	// Wake queues a round of a namespace.
	Wake func(namespace string)

	// RejectionRetry is the approximate delay after a denial until the service of a webhook rule is
	// called again. Default: webhooktask.DefaultRejectionRetry.
	RejectionRetry time.Duration

	// Workers is the number of rounds that SetupWithManager runs at once; 0: 10. A quarter of
	// them, at least one, is for namespaces that have used more than their share of CPU time.
	Workers int

	// RoundBudget is the time that a round may take to compile and evaluate rules; 0: 2 s.
	RoundBudget time.Duration

	// Memory bounds the bytes that rules remember from one round to the next, in all namespaces together;
	// 0: 64 MiB.
	Memory int64

	// BatchInterval is the interval between batches of one PodTransitionRule or PodDisruptionBudget: each costs
	// a write of its record; 0: a batch is never postponed.
	BatchInterval time.Duration

	// Prepared is called with each module that is evaluated for a rule from now on; nil: not called.
	Prepared func(spec.Module)

	// Traced returns the lifecycles of requests whose traces are exported; nil: none are.
	Traced func([]rule.Request) []tracing.Lifecycle
}

// defaultMemory is Config.Memory by default.
const defaultMemory = 64 << 20

// New returns a Reconciler.
func New(c Config) *Reconciler {
	workers, calls := cmp.Or(c.Workers, defaultWorkers), cmp.Or(c.InFlight, dispatch.NewInFlight())
	evaluator := evaluation.New(evaluation.Config{
		Engine: c.Engine, Prepared: c.Prepared,
		RejectionRetry: cmp.Or(c.RejectionRetry, webhooktask.DefaultRejectionRetry), Hold: c.Hold,
	})
	return &Reconciler{
		index: c.Index, evaluator: evaluator, state: newState(cmp.Or(c.Memory, defaultMemory), calls),
		pods: c.Pods, statuses: c.Statuses, budgets: c.Budgets, recorder: c.Recorder, traced: c.Traced, options: c.Options, metrics: c.Metrics, clock: c.Clock,
		caller: c.Caller, undo: c.Undo, managerNamespace: c.ManagerNamespace,
		wake: c.Wake, workers: workers, lanes: newLanes(workers), budget: cmp.Or(c.RoundBudget, evaluation.DefaultBudget),
		roundBytes: evaluation.DefaultMemory, writesAtOnce: defaultWritesAtOnce, batchInterval: c.BatchInterval,
	}
}

// Reconcile makes one round in a namespace, once there is a place for it among other namespaces: it takes a
// snapshot, evaluates the rules, allocates permits, writes them, and reports. It may stop at any instruction:
// the next round, here or in another process, continues with the stored objects.
func (r *Reconciler) Reconcile(ctx context.Context, namespace string) (reconcile.Result, error) {
	turn, ok := r.begin(namespace)
	if !ok {
		return reconcile.Result{}, nil // the end of another round queues it again
	}
	defer r.end(turn)
	snapshot, wait := r.snapshot(ctx, turn, namespace)
	if wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if snapshot.NeedsNodes() {
		if err := r.nodes.begin(ctx); err != nil {
			return reconcile.Result{}, err
		}
	}
	evaluated := r.evaluate(ctx, turn, snapshot)
	allocated := evaluated.Allocate(ctx, turn.Turn, r.clock.Now())
	if turn.Cause == evaluation.CauseGone {
		return reconcile.Result{}, nil // the change that made it so has queued the namespace
	}
	outcome := evaluation.Outcome{Evaluation: evaluated, Allocation: allocated}
	r.count(turn, snapshot, outcome)
	written, writeErr := r.write(ctx, snapshot, outcome)
	undone, undoErr := r.undoExpired(ctx, snapshot, outcome)
	reported, reportErr := r.report(ctx, turn, snapshot, outcome)
	r.forget(snapshot, outcome)
	if err := errors.Join(writeErr, undoErr, reportErr); err != nil {
		return reconcile.Result{}, err
	}
	for _, delay := range []time.Duration{snapshot.Retry, evaluated.Retry, allocated.Retry, written, undone, reported} {
		wait = backoff.MinDelay(wait, delay)
	}
	return reconcile.Result{RequeueAfter: wait}, nil
}

// evaluate evaluates the rules, and admits the calls that they need.
func (r *Reconciler) evaluate(ctx context.Context, turn *turn, snapshot snapshot) evaluation.Evaluation {
	now := r.clock.Now()
	modules := r.evaluator.EvaluateModules(ctx, turn.Turn, snapshot.Snapshot, now)
	calls := r.knownCalls(turn, snapshot)
	evaluated := r.evaluator.Evaluate(ctx, turn.Turn, snapshot.Snapshot, snapshot.state.evaluation, modules, calls, now)
	r.countSkipped(turn, evaluated)
	if len(calls.Rules) > 0 {
		evaluated.OpenCalls(r.caller.Admit)
	}
	return evaluated
}

// write writes the reservations and the permits of an outcome, and makes its calls, each after the status
// that records it. It returns the delay until the postponed writes; 0 for none.
//
// A status that cannot be written holds back no pod that is not in its record, and a pod that cannot be
// written no other pod.
func (r *Reconciler) write(ctx context.Context, snapshot snapshot, o evaluation.Outcome) (wait time.Duration, err error) {
	stored, wait, err := r.writeRecords(ctx, snapshot, o)
	conflict, permitErr := r.writePermits(ctx, snapshot, o, stored)
	if conflict {
		wait = backoff.MinDelay(wait, retryConflict)
	}
	called := r.call(ctx, snapshot, o, stored)
	return backoff.MinDelay(wait, called), errors.Join(err, permitErr)
}

// report writes the human-readable status and the explanations of an outcome, a little at a time: no pod
// waits for either. It returns the delay until the postponed writes; 0 for none.
func (r *Reconciler) report(ctx context.Context, turn *turn, snapshot snapshot, o evaluation.Outcome) (wait time.Duration, err error) {
	wait, err = r.writeBackground(ctx, turn, snapshot, o)
	later, explainErr := r.explain(ctx, turn, snapshot, o)
	return backoff.MinDelay(wait, later), errors.Join(err, explainErr)
}

// forget drops the state of PodTransitionRules and webhook rules that no longer exist, and the state of a
// PodDisruptionBudget for which no pod waits, once its last batch does not postpone the next.
func (r *Reconciler) forget(snapshot snapshot, o evaluation.Outcome) {
	present := func(ruleset string) bool { _, has := o.Rulesets[ruleset]; return has }
	called := func(id rule.RuleID) bool {
		eval, has := o.Rules[id]
		return has && eval.Webhook() != nil
	}
	listed := map[string]bool{}
	for name := range snapshot.Records() {
		listed[name] = true
	}
	needed := func(name string, record *recordState) bool {
		return listed[name] || record.batches.isRecent(r.clock.Now(), r.batchInterval)
	}
	rulesets, rules := r.state.forget(snapshot.Namespace, present, needed, called)
	for _, gone := range rulesets {
		r.metrics.forget(gone)
	}
	for _, gone := range rules {
		r.caller.Forget(gone)
	}
}

func ruleKey(object *appsv1alpha1.PodTransitionRule) types.NamespacedName {
	return types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
}
