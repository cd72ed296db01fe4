package podtransitionrule

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/lanes"
	"github.com/podops-dev/podops/pkg/lifecycle"
	"github.com/podops-dev/podops/pkg/opa"
	"github.com/podops-dev/podops/pkg/permit"
	"github.com/podops-dev/podops/pkg/podindex"
	"github.com/podops-dev/podops/pkg/rule/spec"
	"github.com/podops-dev/podops/pkg/webhooktask"
)

const (
	// statusInterval is the least time between two writes of a status that carry no
	// reservation. Numbers change with every pod; people do not read that fast.
	statusInterval = time.Second

	// retryStale is how soon a namespace is looked at again whose pods have not been
	// seen as far as a record demands. The watch is behind by milliseconds, as a rule.
	retryStale = 50 * time.Millisecond

	// viewTimeout is how long one record may demand a view that never comes.
	// Bookmarks reach every real resourceVersion within a minute or so; a record that
	// asks for more was not written by PodOps, and must not stop it for ever. That no
	// watch is behind by this much, while others go on, is what permits rely on.
	viewTimeout = 5 * time.Minute

	// retryConflict is how soon a namespace is looked at again in which a pod had moved
	// on. The watch brings the pod sooner, as a rule; this is for when it brings nothing.
	retryConflict = time.Second

	// retryFailed is how soon rules are asked again that could not be evaluated. The
	// machine was busy, as a rule.
	retryFailed = 5 * time.Second

	// defaultWritesAtOnce bounds the parallel requests of one round.
	defaultWritesAtOnce = 16

	// retryBackground is how soon a namespace is looked at again in which something is put off that
	// no pod waits for (Reconciler.rest).
	retryBackground = 100 * time.Millisecond
)

// DefaultBatchInterval is how long a PodTransitionRule has at least between two batches of
// permits in a manager. Each batch costs a write of its status: pods that come back one by one
// within a second share it, and an operation that takes many seconds hardly waits for others.
const DefaultBatchInterval = time.Second

// PodWriter writes a lifecycle change to a pod that is still at its resourceVersion.
type PodWriter interface {
	// Write fails with a conflict when the pod has moved on.
	Write(ctx context.Context, pod *corev1.Pod, change lifecycle.Change) error

	// Seen is false while the pod is older than what was written.
	Seen(pod *corev1.Pod) bool
}

// StatusWriter writes the status of a PodTransitionRule that is still at its
// resourceVersion, and returns the object as stored.
type StatusWriter interface {
	WriteStatus(ctx context.Context, object *appsv1alpha1.PodTransitionRule) (*appsv1alpha1.PodTransitionRule, error)
}

// Reconciler decides for one namespace at a time.
type Reconciler struct {
	index    *podindex.Index
	programs *programs
	pods     PodWriter
	statuses StatusWriter
	recorder events.EventRecorder
	options  lifecycle.Options
	metrics  *Metrics
	caller   Caller
	wake     func(namespace string)
	calls    *inFlight
	askAgain time.Duration
	clock    clock.PassiveClock

	// workers are shared between namespaces by lanes; budget bounds each round.
	workers int
	lanes   *lanes.Lanes
	budget  time.Duration

	// roundBytes bounds what one round holds of what it found.
	roundBytes int64

	// batchInterval is the least time between two batches of one PodTransitionRule.
	batchInterval time.Duration

	// writesAtOnce bounds the parallel requests of one round.
	writesAtOnce int

	// rest lets one write at a time go, in all namespaces, that no pod waits for: statuses
	// and annotations for people, and calls that are not made. The next round, for which
	// pods do wait, is not to wait for many of them, and nor is the API server to be busy
	// with them: the slower it answers, the less it is asked.
	background *semaphore.Weighted

	mu         sync.Mutex
	lastStatus map[types.NamespacedName]time.Time

	// lastBatch is when reservations were last added to the record of an object.
	lastBatch map[types.NamespacedName]time.Time

	// lastBackground is the object whose status was the last background write, by
	// namespace: the next one has its turn then.
	lastBackground map[string]string
	pendingViews   map[types.NamespacedName]pendingView
	explained      map[string]explained // by namespace

	// missed are the pods whose judges the last round had no time for, by namespace (permit.Plan.Missed).
	missed map[string]map[types.UID]int

	// missing are the pods that workloads miss, by UID of the workload.
	missing map[types.NamespacedName]map[types.UID]missing
}

// demand is a record that asks for more than has been seen.
type pendingView struct {
	record *appsv1alpha1.PermitRecord
	since  time.Time
}

// Config is what a Reconciler is made of. All fields but Workers, RoundBudget, Memory,
// BatchInterval, Prepared and AskAgain must be set.
type Config struct {
	Index    *podindex.Index
	Engine   *opa.Engine
	Pods     PodWriter
	Statuses StatusWriter
	Recorder events.EventRecorder
	Options  lifecycle.Options
	Metrics  *Metrics
	Clock    clock.PassiveClock

	// Caller makes the calls of webhook rules, and hands the results to Deliver.
	Caller Caller

	// Wake has a round made in a namespace.
	Wake func(namespace string)

	// AskAgain is about how long after a no the service of a webhook rule is asked again.
	// Default: webhooktask.DefaultAskAgain.
	AskAgain time.Duration

	// Workers is how many rounds SetupWithManager runs at once; 0: 10. A quarter of them, at least
	// one, is for namespaces that have used more than their share of CPU time.
	Workers int

	// RoundBudget is how long a round may take to compile and evaluate rules; 0: 2 s.
	RoundBudget time.Duration

	// Memory is how many bytes rules remember from one round to the next, in all namespaces together;
	// 0: 64 MiB.
	Memory int64

	// BatchInterval is the least time between two batches of one PodTransitionRule, of which
	// each costs a write of its status; 0: none.
	BatchInterval time.Duration

	// Prepared is told each module that a rule is asked with from now on; nil: nobody.
	Prepared func(spec.Module)
}

// defaultMemory is Config.Memory by default.
const defaultMemory = 64 << 20

// New returns a Reconciler.
func New(c Config) *Reconciler {
	workers := cmp.Or(c.Workers, defaultWorkers)
	return &Reconciler{
		index: c.Index, programs: newPrograms(c.Engine, c.Prepared, cmp.Or(c.Memory, defaultMemory)), pods: c.Pods, statuses: c.Statuses,
		recorder: c.Recorder, options: c.Options, metrics: c.Metrics, clock: c.Clock,
		caller: c.Caller, wake: c.Wake, calls: newInFlight(), askAgain: cmp.Or(c.AskAgain, webhooktask.DefaultAskAgain),
		workers: workers, lanes: newLanes(workers), budget: cmp.Or(c.RoundBudget, defaultRoundBudget),
		roundBytes: defaultRoundBytes, writesAtOnce: defaultWritesAtOnce, background: semaphore.NewWeighted(1),
		batchInterval: c.BatchInterval,

		lastStatus:     map[types.NamespacedName]time.Time{},
		lastBatch:      map[types.NamespacedName]time.Time{},
		lastBackground: map[string]string{},
		pendingViews:   map[types.NamespacedName]pendingView{},
		explained:      map[string]explained{},
		missed:         map[string]map[types.UID]int{},
		missing:        map[types.NamespacedName]map[types.UID]missing{},
	}
}

// Reconcile makes one round in the namespace that is the request's name, once there is a place
// for it among other namespaces.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	turn, ok := r.begin(req.Name)
	if !ok {
		return reconcile.Result{}, nil // the end of another round queues it again
	}
	defer r.end(turn)
	return r.round(ctx, turn, req.Name)
}

// round decides, writes, and reports.
func (r *Reconciler) round(ctx context.Context, turn *turn, namespace string) (reconcile.Result, error) {
	r.index.Expire(r.clock.Now())
	view, prepared := r.view(ctx, turn, namespace)
	if view.ResourceVersion == "" {
		return reconcile.Result{RequeueAfter: retryStale}, nil
	}
	if stale := r.stale(view); stale != "" {
		ctrllog.FromContext(ctx).V(1).Info("Pods not seen far enough yet", "podTransitionRule", stale, "seen", view.ResourceVersion)
		return reconcile.Result{RequeueAfter: retryStale}, nil
	}
	counted := r.countMissing(view)
	decided := r.decide(ctx, turn, view, prepared)
	defer r.background.Release(decided.skipped)
	decided.retry = minDelay(decided.retry, counted)
	plan := permit.Next(decided.budgets, decided.candidates, r.recheck(ctx, decided), r.clock.Now())
	if turn.cause == gaveWayGone {
		return reconcile.Result{}, nil // the news of it is in the queue
	}
	r.keepMissed(namespace, plan.Missed)
	decided.refuse(plan)
	r.count(decided, r.clock.Now())

	// One status that cannot be written holds back nobody who is not in its record, and
	// one pod that cannot be stamped nobody at all.
	wait, did, err := r.writeFirst(ctx, view, decided, plan)
	conflict, stampErr := r.write(ctx, r.stamps(view, decided, plan, did.reservations))
	r.send(ctx, view, decided, did)

	// What people read comes last.
	putOff, restErr := r.writeBackground(ctx, view, decided, plan)
	details, later := r.details(view, decided)
	defer r.background.Release(int64(len(details)))
	moved, detailErr := r.write(ctx, details)
	if err := errors.Join(err, stampErr, restErr, detailErr); err != nil {
		return reconcile.Result{}, err
	}
	wait = minDelay(wait, putOff)
	if conflict || moved {
		wait = minDelay(wait, retryConflict)
	}
	return reconcile.Result{RequeueAfter: minDelay(minDelay(wait, later), decided.retry)}, nil
}

// keepMissed replaces what is remembered of pods that had no turn in a namespace.
func (r *Reconciler) keepMissed(namespace string, missed map[types.UID]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(missed) == 0 {
		delete(r.missed, namespace)
		return
	}
	r.missed[namespace] = missed
}

// missedIn returns the pods that had no turn in a namespace. The map is never modified.
func (r *Reconciler) missedIn(namespace string) map[types.UID]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.missed[namespace]
}

// stale returns the name of a rule whose record demands a view of the pods that is not
// there yet, "" when there is none.
func (r *Reconciler) stale(view podindex.Snapshot) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	stale := ""
	for _, rule := range view.Rules {
		key, record := keyOf(rule.Object), rule.Object.Status.Permits
		if permit.Reaches(view.ResourceVersion, record) {
			delete(r.pendingViews, key)
			continue
		}
		last, ok := r.pendingViews[key]
		if !ok || !apiequality.Semantic.DeepEqual(last.record, record) {
			last = pendingView{record: record, since: now}
			r.pendingViews[key] = last
		}
		if now.Sub(last.since) < viewTimeout {
			stale = cmp.Or(stale, rule.Object.Name)
		}
	}
	return stale
}

func keyOf(object *appsv1alpha1.PodTransitionRule) types.NamespacedName {
	return types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
}

// view returns the facts of a namespace, and its rules, ready to be asked. Other pods
// are part of it for the rules that read them.
func (r *Reconciler) view(ctx context.Context, turn *turn, namespace string) (podindex.Snapshot, map[string][]*preparedRule) {
	for {
		view := r.index.Snapshot(namespace, r.programs.needsPods)
		prepared := map[string][]*preparedRule{}
		missing := false
		for _, rule := range view.Rules {
			known := r.programs.needsPods(rule.Object)
			prepared[rule.Object.Name] = r.programs.of(ctx, turn, rule.Object, view.Policies)
			missing = missing || !known && r.programs.needsPods(rule.Object)
		}
		if !missing || ctx.Err() != nil {
			return view, prepared
		}
	}
}
