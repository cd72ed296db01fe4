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
	"github.com/podops-dev/podops/pkg/facts"
	"github.com/podops-dev/podops/pkg/lifecycle"
	"github.com/podops-dev/podops/pkg/permit"
	"github.com/podops-dev/podops/pkg/policy/compile"
	"github.com/podops-dev/podops/pkg/policy/engine"
)

const (
	// statusInterval is the least time between two writes of a status that carry no
	// reservation. Numbers change with every pod; people do not read that fast.
	statusInterval = time.Second

	// retryStale is how soon a namespace is looked at again whose pods have not been
	// seen as far as a record demands. The watch is behind by milliseconds, as a rule.
	retryStale = 50 * time.Millisecond

	// distrustAfter is how long one record may demand a view that never comes.
	// Bookmarks reach every real resourceVersion within a minute or so; a record that
	// asks for more was not written by PodOps, and must not stop it for ever. That no
	// watch is behind by this much, while others go on, is what permits rely on.
	distrustAfter = 5 * time.Minute

	// retryConflict is how soon a namespace is looked at again in which a pod had moved
	// on. The watch brings the pod sooner, as a rule; this is for when it brings nothing.
	retryConflict = time.Second

	// retryFailed is how soon rules are asked again that could not be evaluated. The
	// machine was busy, as a rule.
	retryFailed = 5 * time.Second

	// defaultWritesAtOnce bounds the parallel requests of one round.
	defaultWritesAtOnce = 16

	// retryRest is how soon a namespace is looked at again in which something is put off that
	// no pod waits for (Reconciler.rest).
	retryRest = 100 * time.Millisecond
)

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
	index    *facts.Index
	programs *programs
	pods     PodWriter
	statuses StatusWriter
	recorder events.EventRecorder
	options  lifecycle.Options
	metrics  *Metrics
	caller   Caller
	wake     func(namespace string)
	calls    *callbook
	clock    clock.PassiveClock

	// writesAtOnce bounds the parallel requests of one round.
	writesAtOnce int

	// rest lets one write at a time go, in all namespaces, that no pod waits for: statuses
	// and annotations for people, and calls that are not made. The next round, for which
	// pods do wait, is not to wait for many of them, and nor is the API server to be busy
	// with them: the slower it answers, the less it is asked.
	rest *semaphore.Weighted

	mu         sync.Mutex
	lastStatus map[types.NamespacedName]time.Time

	// lastRest is the object whose status was the last to be written for people only, by
	// namespace: the next one has its turn then.
	lastRest map[string]string
	demands  map[types.NamespacedName]demand
	told     map[string]map[string]string // namespace -> request key -> what its last event said
	detailed map[string]map[types.UID]detailed
}

// demand is a record that asks for more than has been seen.
type demand struct {
	record *appsv1alpha1.PermitRecord
	since  time.Time
}

// Config is what a Reconciler is made of. All fields but Prepared must be set.
type Config struct {
	Index    *facts.Index
	Engine   *engine.Engine
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

	// Prepared is told each module that a rule is asked with from now on; nil: nobody.
	Prepared func(compile.Module)
}

// New returns a Reconciler.
func New(c Config) *Reconciler {
	return &Reconciler{
		index: c.Index, programs: newPrograms(c.Engine, c.Prepared), pods: c.Pods, statuses: c.Statuses,
		recorder: c.Recorder, options: c.Options, metrics: c.Metrics, clock: c.Clock,
		caller: c.Caller, wake: c.Wake, calls: newCallbook(),
		writesAtOnce: defaultWritesAtOnce, rest: semaphore.NewWeighted(1),
		lastStatus: map[types.NamespacedName]time.Time{},
		lastRest:   map[string]string{},
		demands:    map[types.NamespacedName]demand{},
		told:       map[string]map[string]string{},
		detailed:   map[string]map[types.UID]detailed{},
	}
}

// Reconcile makes one round in the namespace that is the request's name.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	view, prepared := r.view(ctx, req.Name)
	if view.ResourceVersion == "" {
		return reconcile.Result{RequeueAfter: retryStale}, nil
	}
	if stale := r.stale(view); stale != "" {
		ctrllog.FromContext(ctx).V(1).Info("Pods not seen far enough yet", "podTransitionRule", stale, "seen", view.ResourceVersion)
		return reconcile.Result{RequeueAfter: retryStale}, nil
	}
	decided := r.decide(ctx, view, prepared)
	defer r.rest.Release(decided.refused)
	plan := permit.Next(decided.budgets, decided.candidates, r.judge(ctx, decided), r.clock.Now())
	decided.refuse(plan)
	r.count(decided, r.clock.Now())

	// One status that cannot be written holds back nobody who is not in its record, and
	// one pod that cannot be stamped nobody at all.
	wait, did, err := r.writeFirst(ctx, view, decided, plan)
	conflict, stampErr := r.write(ctx, changesOf(view, plan, did.reservations, r.options, r.clock.Now()))
	r.tell(view, decided)
	r.send(ctx, view, decided, did)

	// What people read comes last.
	putOff, restErr := r.writeRest(ctx, view, decided, plan)
	details, later := r.details(view, decided)
	defer r.rest.Release(int64(len(details)))
	moved, detailErr := r.write(ctx, details)
	if err := errors.Join(err, stampErr, restErr, detailErr); err != nil {
		return reconcile.Result{}, err
	}
	wait = sooner(wait, putOff)
	if conflict || moved {
		wait = sooner(wait, retryConflict)
	}
	return reconcile.Result{RequeueAfter: sooner(sooner(wait, later), decided.retry)}, nil
}

// stale returns the name of a rule whose record demands a view of the pods that is not
// there yet, "" when there is none.
func (r *Reconciler) stale(view facts.View) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	stale := ""
	for _, rule := range view.Rules {
		key, record := keyOf(rule.Object), rule.Object.Status.Permits
		if permit.Reaches(view.ResourceVersion, record) {
			delete(r.demands, key)
			continue
		}
		last, ok := r.demands[key]
		if !ok || !apiequality.Semantic.DeepEqual(last.record, record) {
			last = demand{record: record, since: now}
			r.demands[key] = last
		}
		if now.Sub(last.since) < distrustAfter {
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
func (r *Reconciler) view(ctx context.Context, namespace string) (facts.View, map[string][]*preparedRule) {
	for {
		view := r.index.View(namespace, r.programs.needsPods)
		prepared := map[string][]*preparedRule{}
		missing := false
		for _, rule := range view.Rules {
			known := r.programs.needsPods(rule.Object)
			prepared[rule.Object.Name] = r.programs.of(ctx, rule.Object, view.Policies)
			missing = missing || !known && r.programs.needsPods(rule.Object)
		}
		if !missing || ctx.Err() != nil {
			return view, prepared
		}
	}
}
