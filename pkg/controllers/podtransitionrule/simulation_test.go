package podtransitionrule

import (
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/permit"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/test/builders"
	"github.com/podops-dev/podops/test/sim"
)

// failer has the common methods of *testing.T and *rapid.T.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// simulation is a server with its actors, and the replicas of the manager that act on it.
type simulation struct {
	t        failer
	engine   *opa.Engine
	metrics  *Metrics
	server   *server
	replicas []*replica
	owners   map[types.UID]podindex.Owner

	// unknown are workloads of a kind that PodOps does not know, of quiet simulations only: they
	// make every pod again.
	unknown map[types.UID]podindex.Owner

	now time.Time

	// skew is by how much the clock of the machine is ahead of now. A replica takes it when it
	// starts: its own clock does not jump (package steadyclock).
	skew time.Duration

	seen *seen

	// born is the number of events of rules that every replica has seen: the events from
	// before the schedule began, and deletions that happened almost podindex.RetiredFor ago.
	// A deleted rule holds pods for that long, so a watch that is behind by more is beyond
	// the guarantee.
	born int

	// marks are how many events of rules there were at times of late, oldest first.
	marks []ruleMark

	// late are writes whose client has given up, and which are still under way.
	late []func() error

	// missing are names of pods that were deleted and will be made again.
	missing []string

	// sick are the pods whose containers fail.
	sick map[types.UID]bool

	// permitted are the pods that a permit took away and that did not serve since.
	permitted map[types.UID]permitted

	// quiet: pods become unavailable through permits only, and no rule changes.
	quiet bool

	// batchInterval is that of every replica.
	batchInterval time.Duration

	// counted is when the disruption controller has counted last, and every replica has seen it.
	counted time.Time
}

// ruleMark is how many events of rules there were at a time.
type ruleMark struct {
	at     time.Time
	events int
}

// permitted is a permit that took an available pod away.
type permitted struct {
	version int
	pod     *corev1.Pod // as it was
	types   []string    // of the operations
	rules   map[types.UID]int64
}

func newSimulation(t failer, e *opa.Engine, s *seen, quiet bool) *simulation {
	s.simulations++
	return &simulation{
		t: t, engine: e, metrics: s.metrics, server: newServer(s.simulations), seen: s, quiet: quiet,
		now: builders.Epoch.Add(time.Hour), counted: builders.Epoch.Add(time.Hour),
		owners: map[types.UID]podindex.Owner{}, unknown: map[types.UID]podindex.Owner{}, sick: map[types.UID]bool{}, permitted: map[types.UID]permitted{},
	}
}

// close ends every process.
func (w *simulation) close() {
	for _, r := range w.replicas {
		r.die()
	}
}

// addOwner makes a workload and its pods, which serve. The pods are labelled
// app=<name>, and every other one tier=gold.
func (w *simulation) addOwner(app string, pods int) {
	w.addWorkload(w.owners, "StatefulSet", app, pods)
}

// addUnknown makes a workload of a kind that PodOps does not know, and its pods, which
// serve.
func (w *simulation) addUnknown(app string, pods int) {
	w.addWorkload(w.unknown, "CloneSet", app, pods)
}

// wanted are all workloads, including workloads that PodOps does not know.
func (w *simulation) wanted() map[types.UID]podindex.Owner {
	all := maps.Clone(w.owners)
	maps.Copy(all, w.unknown)
	return all
}

func (w *simulation) addWorkload(owners map[types.UID]podindex.Owner, kind, app string, pods int) {
	uid := w.server.newUID(app)
	owners[uid] = podindex.Owner{
		UID: uid, Namespace: simNamespace, Kind: kind, Name: app, Desired: pods,
		TemplateLabels: map[string]string{"app": app, appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue},
	}
	for i := range pods {
		w.server.putPod(w.newPod(app, app+"-"+strconv.Itoa(i)).Available().Obj())
	}
}

// newPod is a pod that its owner has just made.
func (w *simulation) newPod(app, name string) *builders.PodBuilder {
	tier := "gold"
	if (name[len(name)-1]-'0')%2 == 1 {
		tier = "iron"
	}
	b := builders.MakePod(name).Namespace(simNamespace).UID(w.server.newUID(name)).Label("app", app).Label("tier", tier).Label("go", "yes")
	for uid, owner := range w.wanted() {
		if owner.Name == app {
			b.OwnedBy(metav1.OwnerReference{APIVersion: "apps/v1", Kind: owner.Kind, Name: app, UID: uid})
		}
	}
	return b
}

// tick lets a moment pass.
func (w *simulation) tick() { w.now = w.now.Add(time.Millisecond) }

// podNames are the names of the stored pods for which the condition holds, sorted.
func (w *simulation) podNames(holds func(*corev1.Pod) bool) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(w.server.pods)) {
		if holds(w.server.pods[name]) {
			names = append(names, name)
		}
	}
	return names
}

// edit stores a change of a pod that no admission looks at.
func (w *simulation) edit(name string, change func(*corev1.Pod)) {
	pod := w.server.pods[name].DeepCopy()
	change(pod)
	w.server.putPod(pod)
	if isServing(pod) {
		delete(w.permitted, pod.UID)
	}
}

// request is an update of a pod by a client: admission answers it.
func (w *simulation) request(name string, change func(*corev1.Pod)) {
	old := w.server.pods[name]
	requested := old.DeepCopy()
	change(requested)
	answer := lifecycle.AdmitUpdate(lifecycle.NewPodFacts(old), lifecycle.NewPodFacts(requested), false, lifecycle.Options{}, w.now)
	if len(answer.Denials) > 0 {
		w.t.Fatalf("the client requests a transition that is denied: %s", lifecycle.DenialText(answer.Denials))
	}
	w.edit(name, func(pod *corev1.Pod) {
		pod.Annotations = requested.Annotations
		pod.Labels = answer.Change.Apply(requested.Labels)
	})
}

// write is the one way in which a replica writes to a pod. It returns the new
// resourceVersion.
func (w *simulation) write(from basis, decided *corev1.Pod, change lifecycle.Change) (int, error) {
	before := w.server.pods[decided.Name]
	after, err := w.server.writePod(decided, change, w.now)
	if err != nil {
		return 0, err
	}
	w.t.Logf("pod %s, decided at %d: %v", decided.Name, from.pods, change.Transitions)
	var types []string
	for _, move := range change.Transitions {
		if move.Step == lifecycle.StepPermit {
			types = append(types, move.Type)
		}
	}
	if len(types) > 0 && sim.IsTrue(before, corev1.PodReady) {
		w.checkDisruptions(before)
	}
	switch {
	case len(types) == 0:
		w.seen.touches++
	case isServing(before):
		w.seen.permits++
		w.seen.countSurge(w, before)
		w.permitted[after.UID] = permitted{version: w.server.version, pod: before, types: types, rules: from.rules}
		w.checkPermit(from, before, types)
	}
	if isServing(after) {
		delete(w.permitted, after.UID)
	}
	return w.server.version, nil
}

// writeStatus is the one way in which a replica writes a status.
func (w *simulation) writeStatus(object *appsv1alpha1.PodTransitionRule) (*appsv1alpha1.PodTransitionRule, error) {
	stored, err := w.server.writeStatus(object)
	w.t.Logf("status of %s: %+v, %v", object.Name, object.Status.Permits, err)
	if err != nil {
		w.seen.conflicts++
		return nil, err
	}
	return stored, nil
}

// writeBudget is the one way in which a replica writes a record to a PodDisruptionBudget.
func (w *simulation) writeBudget(read podindex.DisruptionBudget, record *appsv1alpha1.PermitRecord) (podindex.DisruptionBudget, error) {
	stored, err := w.server.writeBudget(read, record)
	w.t.Logf("record of PodDisruptionBudget %s: %s, %v", read.Name, permit.Encode(record), err)
	if err != nil {
		w.seen.contested++
	}
	return stored, err
}

// checkPermit is the invariant: a permit of an available pod breaks no
// bound of a rule. from is the input of the round that grants the permit, before is the pod as
// it was, types are the operations permitted. That another round reserved the pod earlier is
// no excuse: the round that stamps it has counted the pods again. Nor is it in a quiet
// simulation that the rule was replaced since: each rule that follows has the same spec, and
// takes over the reservations.
func (w *simulation) checkPermit(from basis, before *corev1.Pod, types []string) {
	w.t.Helper()
	for _, object := range w.server.rules {
		selector := mustSelector(object.Spec.Selector)
		if !selector.Matches(labels.Set(before.Labels)) || !w.quiet && from.rules[object.UID] != object.Generation {
			continue
		}
		for _, rule := range object.Spec.Rules {
			if bounds(rule) && areSubjects(rule, before, types) {
				w.checkBound(from, object, rule, selector, before.Name)
			}
		}
	}
}

// areSubjects reports whether the rule applies to all of these operations of a pod.
func areSubjects(rule appsv1alpha1.TransitionRule, pod *corev1.Pod, types []string) bool {
	return !slices.ContainsFunc(types, func(one string) bool { return !isSubject(rule, pod, one) })
}

// bounds: the rule holds back permits for the sake of availability.
func bounds(rule appsv1alpha1.TransitionRule) bool {
	return rule.AvailablePolicy != nil && !rule.Disabled && rule.Stage == appsv1alpha1.StagePreCheck &&
		rule.Enforcement == appsv1alpha1.EnforcementEnforce
}

func (w *simulation) checkBound(from basis, object *appsv1alpha1.PodTransitionRule, rule appsv1alpha1.TransitionRule, selector labels.Selector, pod string) {
	w.t.Helper()
	truth := w.truth(selector)
	spare := truth.spare(rule.AvailablePolicy, w.wanted())
	if !w.quiet {
		favourable := w.favourable(from, object, rule, selector)
		spare = max(spare, favourable.spare(rule.AvailablePolicy, w.owners), favourable.spare(rule.AvailablePolicy, from.owners))
	}
	if spare < 0 {
		w.t.Fatalf("the permit of pod %s overshoots %s/%s by %d: %+v, decided at %d, now %d",
			pod, object.Name, rule.Name, -spare, truth, from.pods, w.server.version)
	}
}

// favourable counts the pods as they would be, had nothing but permits happened since
// the view that the permit was decided from. What happens by itself while a permit is on
// its way cannot be known to any replica, and is no fault of the permit:
//   - A pod that served in the view, and that no permit took away since, serves.
//   - A permit whose decision was made under another spec of the rule, or before there
//     was one, is no permit of this rule: the pod was lost by itself. So is one of an
//     operation that the rule does not apply to, or of a pod that it did not select.
//   - A pod that is new to the rule since the view and does not serve is not there.
//   - What got better since the view counts.
func (w *simulation) favourable(
	from basis, object *appsv1alpha1.PodTransitionRule, rule appsv1alpha1.TransitionRule, selector labels.Selector,
) tally {
	count := newTally(selector)
	selected := func(pod *corev1.Pod) bool { return isThere(pod) && selector.Matches(labels.Set(pod.Labels)) }
	lost := func(uid types.UID) bool {
		taken, permitted := w.permitted[uid]
		return !permitted || taken.version <= from.pods || taken.rules[object.UID] != object.Generation ||
			!selected(taken.pod) || !areSubjects(rule, taken.pod, taken.types)
	}
	then := w.server.podsAt(w.server.eventsUpTo(from.pods))
	now := map[types.UID]bool{}
	for _, pod := range w.server.pods {
		if !selected(pod) {
			continue
		}
		now[pod.UID] = true
		before, known := then[pod.UID]
		known = known && selected(before)
		switch {
		case isServing(pod), known && isServing(before) && lost(pod.UID):
			count.add(pod, true)
		case known, !lost(pod.UID):
			count.add(pod, false)
		}
	}
	for uid, pod := range then {
		if !now[uid] && selected(pod) && isServing(pod) && lost(uid) {
			count.add(pod, true)
		}
	}
	return count
}
