package podtransitionrule

import (
	"context"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask/dispatch"
)

// replica is one process of the manager: an index that is behind the server, and the
// real Reconciler, whose writes wait until the schedule decides their fate.
type replica struct {
	simulation *simulation
	clock      simulationClock
	index      *podindex.Index
	store      podStore
	reconciler *Reconciler
	ctx        context.Context
	kill       context.CancelFunc

	// How many events of each history the replica has seen.
	pods, rules, budgets int

	// queued, or due at a time: the state of the queue of the controller.
	queued bool
	due    time.Time

	// A round is open while running; parked is the write that it waits for.
	running bool
	parked  *call
	calls   chan call
	results chan roundResult

	// basis is the input of the open round.
	basis basis

	// sent is the memory of podwriter.Writer. A round stamps one pod while it looks at
	// the next, hence the lock.
	sentLock sync.Mutex
	sent     map[types.UID]int

	// owners are the workloads as the replica has seen them.
	owners map[types.UID]podindex.Owner
}

// podStore is the store that a reflector writes to.
type podStore interface {
	cache.ReflectorStore
	cache.ReflectorBookmarkStore
}

// basis is the input of a decision.
type basis struct {
	// pods is the resourceVersion up to which the pods had been seen.
	pods int

	// rules are the generations of the rules, by UID.
	rules map[types.UID]int64

	owners map[types.UID]podindex.Owner
}

// call is a write that has not reached the server yet.
type call struct {
	apply func() error
	reply chan error
}

type roundResult struct {
	result reconcile.Result
	err    error
}

// fate is the outcome of a write.
type fate string

const (
	fateAccepted fate = "accepted"
	fateConflict fate = "conflict"         // refused, although nothing is wrong with it
	fateLost     fate = "lost"             // never arrives
	fateUnheard  fate = "unheard"          // arrives, and the answer is lost
	fateLate     fate = "arrives later"    // given up by the client, and arrives later
	fateKilled   fate = "killed before it" // the process dies with the request unsent
	fateKilling  fate = "killed after it"  // the process dies with the answer unread
)

func fates() []fate {
	return []fate{fateAccepted, fateAccepted, fateAccepted, fateConflict, fateLost, fateUnheard, fateLate, fateKilled, fateKilling}
}

var errTimeout error = apierrors.NewTimeoutError("the server is slow", 1)

// newReplica starts a process. It has listed the pods and the rules as they were after
// so many events, and the present PodDisruptionBudgets.
func newReplica(w *simulation, pods, rules int) *replica {
	r := &replica{simulation: w, clock: simulationClock{w, w.skew}, pods: pods, calls: make(chan call), results: make(chan roundResult), sent: map[types.UID]int{}}
	r.ctx, r.kill = context.WithCancel(ctrllog.IntoContext(context.Background(), logr.Discard()))
	r.index = podindex.NewIndex(func(string) { r.queued = true })
	store, ok := r.index.PodStore().(podStore)
	if !ok {
		panic("the store takes no bookmarks")
	}
	r.store = store
	r.reconciler = New(Config{
		Index: r.index, Engine: evaluation.NewEngine(w.engine), Pods: r, Statuses: r, Budgets: r, Recorder: &events.FakeRecorder{},
		Metrics: w.metrics, Clock: r.clock, Caller: &service{}, InFlight: dispatch.NewInFlight(), Wake: func(string) {},
		BatchInterval: w.batchInterval,
	})
	r.reconciler.writesAtOnce = 1 // one write at a time, so that a schedule means one thing
	r.setOwners()
	r.watchRules(rules)
	r.listBudgets()
	r.list(pods)
	r.queued = true
	return r
}

// setOwners delivers the workloads.
func (r *replica) setOwners() {
	r.owners = maps.Clone(r.simulation.owners)
	for _, owner := range r.owners {
		r.index.SetOwner(owner)
	}
}

// watchRules delivers more events of rules.
func (r *replica) watchRules(more int) {
	for range more {
		event := r.simulation.server.ruleHistory[r.rules]
		r.rules++
		if event.gone {
			r.index.RetireRule(ruleKey(event.rule), r.clock.Now())
			continue
		}
		r.index.SetRule(event.rule)
	}
}

// watchBudgets delivers more events of PodDisruptionBudgets.
func (r *replica) watchBudgets(more int) {
	for range more {
		r.index.SetDisruptionBudget(podindex.NewDisruptionBudget(r.simulation.server.budgetHistory[r.budgets]))
		r.budgets++
	}
}

// listBudgets delivers the present PodDisruptionBudgets, and none of the events before.
func (r *replica) listBudgets() {
	for _, budget := range r.simulation.server.budgets {
		r.index.SetDisruptionBudget(podindex.NewDisruptionBudget(budget))
	}
	r.budgets = len(r.simulation.server.budgetHistory)
}

// watchPods delivers more events of pods.
func (r *replica) watchPods(more int) {
	for range more {
		event := r.simulation.server.podHistory[r.pods]
		r.pods++
		err := r.store.Update(event.pod)
		if event.gone {
			err = r.store.Delete(event.pod)
		}
		if err != nil {
			panic(err)
		}
	}
}

// list replaces the pods by the pods after so many events.
func (r *replica) list(events int) {
	s := r.simulation.server
	var objects []any
	for _, pod := range s.podsAt(events) {
		objects = append(objects, pod)
	}
	version := s.version
	if events < len(s.podHistory) {
		version = s.podHistory[events].version - 1
	}
	if err := r.store.Replace(objects, strconv.Itoa(version)); err != nil {
		panic(err)
	}
	r.pods = events
}

// bookmark sends a replica that has seen every event the latest resourceVersion.
func (r *replica) bookmark() {
	if err := r.store.Bookmark(strconv.Itoa(r.simulation.server.version)); err != nil {
		panic(err)
	}
}

// catchUp delivers everything.
func (r *replica) catchUp() {
	r.watchRules(len(r.simulation.server.ruleHistory) - r.rules)
	r.watchBudgets(len(r.simulation.server.budgetHistory) - r.budgets)
	r.watchPods(len(r.simulation.server.podHistory) - r.pods)
	r.bookmark()
}

// start opens a round and runs it to its first write, or to its end.
func (r *replica) start() {
	r.queued, r.due = false, time.Time{}
	r.basis = r.basisNow()
	r.running = true
	go func() {
		result, err := r.reconciler.Reconcile(r.ctx, simNamespace)
		r.results <- roundResult{result, err}
	}()
	r.await()
}

func (r *replica) basisNow() basis {
	view := r.index.Snapshot(simNamespace, nil)
	now := basis{rules: map[types.UID]int64{}, owners: r.owners}
	now.pods, _ = strconv.Atoi(view.ResourceVersion) // "" before the first list: nothing is decided then
	for _, rule := range view.Rules {
		now.rules[rule.Object.UID] = rule.Object.Generation
	}
	return now
}

// await runs the round until it wants to write, or ends.
func (r *replica) await() {
	select {
	case c := <-r.calls:
		r.parked = &c
	case done := <-r.results:
		r.running, r.parked = false, nil
		switch {
		case done.err != nil:
			r.queued = true
		case done.result.RequeueAfter > 0:
			r.due = r.simulation.now.Add(done.result.RequeueAfter)
		}
		r.simulation.seen.round(done)
	}
}

// resume decides over the parked write and runs the round on.
func (r *replica) resume(f fate) {
	err := errTimeout
	switch f {
	case fateAccepted:
		err = r.parked.apply()
	case fateConflict:
		err = errConflict()
	case fateUnheard, fateKilling:
		_ = r.parked.apply() // no process reads the result
	case fateLate:
		r.simulation.late = append(r.simulation.late, r.parked.apply)
	case fateLost, fateKilled:
	}
	if f == fateKilled || f == fateKilling {
		r.die()
		return
	}
	parked := r.parked
	r.parked = nil
	parked.reply <- err
	r.await()
}

// die ends the process: no write of it is sent any more.
func (r *replica) die() {
	r.kill()
	if r.parked != nil {
		r.parked.reply <- context.Canceled
		r.parked = nil
	}
	for r.running {
		select {
		case c := <-r.calls:
			c.reply <- context.Canceled
		case <-r.results:
			r.running = false
		}
	}
}

// round delivers everything, and runs a round with every write accepted.
func (r *replica) round() {
	r.catchUp()
	r.finish()
}

// finish runs the open round, or a new round, to its end with every write accepted.
func (r *replica) finish() {
	if !r.running {
		r.start()
	}
	for r.running {
		r.resume(fateAccepted)
	}
}

func (r *replica) send(apply func() error) error {
	c := call{apply: apply, reply: make(chan error)}
	r.calls <- c
	return <-c.reply
}

// Write implements PodWriter.
func (r *replica) Write(_ context.Context, pod *corev1.Pod, change lifecycle.Change) error {
	if change.IsEmpty() {
		return nil
	}
	from, version := r.basis, 0
	err := r.send(func() (err error) {
		version, err = r.simulation.write(from, pod, change)
		return err
	})
	if err == nil {
		r.sentLock.Lock()
		r.sent[pod.UID] = version
		r.sentLock.Unlock()
	}
	return err
}

// CaughtUp implements PodWriter.
func (r *replica) CaughtUp(pod *corev1.Pod) bool {
	version, err := strconv.Atoi(pod.ResourceVersion)
	r.sentLock.Lock()
	defer r.sentLock.Unlock()
	return err == nil && version >= r.sent[pod.UID]
}

// WriteStatus implements StatusWriter.
func (r *replica) WriteStatus(_ context.Context, object *appsv1alpha1.PodTransitionRule) (*appsv1alpha1.PodTransitionRule, error) {
	var stored *appsv1alpha1.PodTransitionRule
	err := r.send(func() (err error) {
		stored, err = r.simulation.writeStatus(object)
		return err
	})
	if err != nil {
		return nil, err
	}
	return stored, nil
}

// WriteRecord implements BudgetWriter.
func (r *replica) WriteRecord(
	_ context.Context, budget podindex.DisruptionBudget, record *appsv1alpha1.PermitRecord,
) (stored podindex.DisruptionBudget, err error) {
	err = r.send(func() (err error) {
		stored, err = r.simulation.writeBudget(budget, record)
		return err
	})
	return stored, err
}

// simulationClock is the clock of one replica. The clocks of replicas differ when the clock of the machine
// was set between their starts.
type simulationClock struct {
	simulation *simulation
	ahead      time.Duration
}

func (c simulationClock) Now() time.Time                  { return c.simulation.now.Add(c.ahead) }
func (c simulationClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// seen counts the cases that the schedules reached, so that a test can assert that it
// tested something.
type seen struct {
	metrics     *Metrics
	simulations int

	permits, surged, conflicts, stale, late, touches, killed, failed int

	// disruptions are permits that PodDisruptionBudgets count, and contested the conflicts over their records.
	disruptions, contested int
}

// countSurge notes a permit of a pod whose workload has more pods than it wants.
func (s *seen) countSurge(w *simulation, pod *corev1.Pod) {
	controller := metav1.GetControllerOf(pod)
	if controller == nil {
		return
	}
	pods := w.podNames(func(other *corev1.Pod) bool {
		owner := metav1.GetControllerOf(other)
		return isThere(other) && owner != nil && owner.UID == controller.UID
	})
	if len(pods) > w.wanted()[controller.UID].Desired {
		s.surged++
	}
}

func (s *seen) round(done roundResult) {
	if done.err != nil {
		s.failed++
	}
	if done.result.RequeueAfter == evaluation.RetryStale {
		s.stale++
	}
}
