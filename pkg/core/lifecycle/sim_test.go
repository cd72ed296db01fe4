package lifecycle_test

import (
	"cmp"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/test/sim"
)

// epoch is when every simulation begins.
var epoch = sim.Epoch

// failer has the common methods of *testing.T and *rapid.T.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// environment is one pod with its environment: an API server with the two admission webhooks, the
// controller and a kubelet. Every call of the package goes through it and is checked
// (checkedAdvance).
type environment struct {
	pod   *corev1.Pod // as stored; nil once it is gone
	clock *sim.Clock  // the time of day, which may be set
	opts  lifecycle.Options

	// steady is for how long the process has observed the present readiness, and readiness the
	// one of the last observation.
	steady    time.Duration
	readiness lifecycle.Readiness

	kubelet sim.Kubelet

	// services is whether a Service selects the pod.
	services lifecycle.Services

	// drained is whether the drain endpoint of the pod confirms that no connection is left.
	drained bool

	// createRules is whether PostCheck rules apply to the creation of the pod.
	createRules bool

	// goneEmployers do not exist; sorted.
	goneEmployers []string

	// controllerWrites counts the requests that the controller sent.
	controllerWrites int
}

func newSim(pod *corev1.Pod) *environment {
	return &environment{pod: pod, clock: sim.NewClock(), kubelet: sim.Kubelet{Healthy: true}}
}

// pass advances the clock.
func (w *environment) pass(d time.Duration) {
	w.observe()
	w.clock.Step(d)
	w.steady += d
}

// observe reads the readiness of the pod.
func (w *environment) observe() {
	if w.gone() {
		return
	}
	if readiness := lifecycle.NewPodFacts(w.pod).Readiness(); readiness != w.readiness {
		w.readiness, w.steady = readiness, 0
	}
}

// facts returns the facts that the controller sees.
func (w *environment) facts() lifecycle.PodFacts {
	w.observe()
	facts := lifecycle.NewPodFacts(w.pod)
	facts.Gone, facts.SteadyFor, facts.Services = w.goneEmployers, w.steady, w.services
	facts.HasCreateRules, facts.Drained = w.createRules, w.drained
	return facts
}

// response is the result of one request of a client.
type response struct {
	denials  []lifecycle.Denial
	stripped []string
	change   lifecycle.Change
}

// update sends one update of the pod through both webhooks and stores the outcome.
// then, if not nil, is another mutating webhook between the two.
func (w *environment) update(t failer, trusted bool, edit, then func(*corev1.Pod)) response {
	t.Helper()
	old, requested := w.pod, w.pod.DeepCopy()
	edit(requested)
	oldFacts, facts := lifecycle.NewPodFacts(old), lifecycle.NewPodFacts(requested)
	admission := checkedAdmitUpdate(t, oldFacts, facts, trusted, w.opts, w.clock.Now())
	if len(admission.Denials) > 0 {
		return response{denials: admission.Denials}
	}
	requested.Labels = admission.Change.Apply(requested.Labels)
	if then != nil {
		then(requested)
	}
	requested.Status = *old.Status.DeepCopy()
	requested.DeletionTimestamp = old.DeletionTimestamp
	denials := lifecycle.CheckUpdate(oldFacts, lifecycle.NewPodFacts(requested), trusted, w.opts, w.clock.Now().Add(time.Millisecond))
	if len(denials) > 0 {
		if then == nil {
			t.Fatalf("CheckUpdate denies what AdmitUpdate produced: %v", denials)
		}
		return response{denials: denials}
	}
	w.store(requested)
	return response{stripped: admission.Stripped, change: admission.Change}
}

// create sends the creation of the pod through admission and stores it.
func (w *environment) create(pod *corev1.Pod) response {
	admission := lifecycle.AdmitCreate(lifecycle.NewPodFacts(pod))
	pod.Labels = admission.Change.Apply(pod.Labels)
	w.store(pod)
	return response{stripped: admission.Stripped, change: admission.Change}
}

// bypass stores a change that no webhook saw.
func (w *environment) bypass(edit func(*corev1.Pod)) {
	requested := w.pod.DeepCopy()
	edit(requested)
	w.store(requested)
}

// reconcile runs one round of the controller.
func (w *environment) reconcile(t failer, permits lifecycle.Permits) lifecycle.Change {
	t.Helper()
	change := checkedAdvance(t, w.facts(), permits, w.opts, w.clock.Now())
	if change.IsEmpty() {
		return change
	}
	w.controllerWrites++
	if before := lifecycle.NewPodFacts(w.pod); change.Gate != nil && *change.Gate && w.createRules && before.Controlled() && before.Gate == lifecycle.GateUnset {
		t.Fatalf("the gate of a new pod opens before its PostCheck rules have passed")
	}
	pod := w.pod.DeepCopy()
	pod.Labels = change.Apply(pod.Labels)
	if len(change.Forget) > 0 {
		forget(pod, change.Forget)
	}
	if change.Gate != nil {
		sim.SetCondition(pod, appsv1alpha1.ServiceReadyGate, *change.Gate, "", w.clock.Now())
	}
	if change.GateReason != nil {
		sim.SetCondition(pod, appsv1alpha1.ServiceReadyGate, sim.IsTrue(pod, appsv1alpha1.ServiceReadyGate), *change.GateReason, w.clock.Now())
	}
	for _, condition := range change.Conditions {
		sim.SetCondition(pod, corev1.PodConditionType(condition.Type), true, condition.Reason, w.clock.Now())
		sim.Condition(pod, corev1.PodConditionType(condition.Type)).Message = condition.Message
	}
	for _, kind := range change.RemoveConditions {
		if sim.Condition(pod, corev1.PodConditionType(kind)) == nil {
			t.Fatalf("Advance removes condition %s, which the pod does not have", kind)
		}
		sim.RemoveCondition(pod, corev1.PodConditionType(kind))
	}
	w.store(pod)
	return change
}

// report is one status report of the kubelet.
func (w *environment) report() {
	pod := w.pod.DeepCopy()
	w.kubelet.Report(pod, w.clock.Now())
	w.store(pod)
}

func (w *environment) delete() {
	pod := w.pod.DeepCopy()
	if pod.DeletionTimestamp == nil {
		pod.DeletionTimestamp = &metav1.Time{Time: w.clock.Now()}
	}
	w.store(pod)
}

func (w *environment) store(pod *corev1.Pod) {
	w.pod = pod
	w.observe()
	if pod.DeletionTimestamp != nil && len(pod.Finalizers) == 0 {
		w.pod = nil
	}
}

func (w *environment) gone() bool { return w.pod == nil }

// expect records the expected finalizers, one employer each.
func expect(pod *corev1.Pod, finalizers []string) {
	conditions := appsv1alpha1.AvailableConditions{ExpectedFinalizers: map[string]string{}}
	for _, name := range finalizers {
		conditions.ExpectedFinalizers[employerOf(name)] = name
	}
	setConditions(pod, conditions)
}

// employerOf returns the employer that puts a finalizer.
func employerOf(finalizer string) string { return "Service/default/" + finalizer }

// forget drops employers from the annotation.
func forget(pod *corev1.Pod, employers []string) {
	conditions, _ := lifecycle.ParseAvailableConditions(pod.Annotations) // a malformed annotation stays as it is
	for _, employer := range employers {
		delete(conditions.ExpectedFinalizers, employer)
	}
	setConditions(pod, conditions)
}

func setConditions(pod *corev1.Pod, conditions appsv1alpha1.AvailableConditions) {
	text, _ := json.Marshal(conditions) // strings always encode
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[appsv1alpha1.AvailableConditionsAnnotationKey] = string(text)
}

// checkedAdvance calls Advance and checks the properties of every call: the arguments are not
// modified, the change does not depend on the order of maps, and it is a fixed point.
func checkedAdvance(t failer, facts lifecycle.PodFacts, permits lifecycle.Permits, opts lifecycle.Options, now time.Time) lifecycle.Change {
	t.Helper()
	before, permitsBefore := cloneFacts(facts), clonePermits(permits)
	change := lifecycle.Advance(facts, permits, opts, now)
	if !sameFacts(before, facts) || !samePermits(permitsBefore, permits) {
		t.Fatalf("Advance modified its arguments")
	}
	again := lifecycle.Advance(before, permitsBefore, opts, now)
	if !reflect.DeepEqual(change, again) {
		t.Fatalf("Advance depends on the order of maps:\n%s", gocmp.Diff(change, again))
	}
	checkFixedPoint(t, facts, change, permits, opts, now)
	checkWaits(t, facts, change, opts)
	for _, jump := range []time.Duration{-time.Hour, time.Hour} {
		checkSameDecision(t, facts.Labels, change, lifecycle.Advance(facts, permits, opts, now.Add(jump)))
	}
	return change
}

// checkWaits checks that operate is granted to a pod that is Ready, or that a Service selects which
// protects, only when it has been observed so for long enough.
func checkWaits(t failer, facts lifecycle.PodFacts, change lifecycle.Change, opts lifecycle.Options) {
	t.Helper()
	granted := slices.ContainsFunc(change.Transitions, func(move lifecycle.Transition) bool { return move.Step == lifecycle.StepOperate })
	if granted && facts.DrainEndpoint.Port != 0 && !facts.Drained {
		t.Fatalf("operate is granted although connections may be left")
	}
	if change.WaitsForDrain && (facts.DrainEndpoint.Port == 0 || facts.Drained || facts.Protected() || change.Wake == 0) {
		t.Fatalf("the pod waits for its drain endpoint without a reason, or forever: %+v", change)
	}
	if !granted || facts.Gate == lifecycle.GateMissing {
		return
	}
	if facts.Ready && !facts.NotSyncing && facts.SteadyFor < cmp.Or(opts.GateSyncTimeout, time.Minute) {
		t.Fatalf("operate is granted to a pod that is Ready, seen so for %s", facts.SteadyFor)
	}
	settles := facts.Services != lifecycle.ServicesNone && facts.SettleTime == nil
	if !facts.Ready && settles && facts.SteadyFor < opts.Settle {
		t.Fatalf("operate is granted to a pod that is unready for %s, settle time %s", facts.SteadyFor, opts.Settle)
	}
}

// checkSameDecision checks that the time of day is in the values of labels and nowhere else.
func checkSameDecision(t failer, labels map[string]string, change, jumped lifecycle.Change) {
	t.Helper()
	keys, jumpedKeys := maps.Keys(change.Apply(labels)), maps.Keys(jumped.Apply(labels))
	if !slices.Equal(slices.Sorted(keys), slices.Sorted(jumpedKeys)) || change.Wake != jumped.Wake ||
		!reflect.DeepEqual(change.Gate, jumped.Gate) || !reflect.DeepEqual(change.GateReason, jumped.GateReason) {
		t.Fatalf("a clock that jumps changes the decision: %v, then %v", change, jumped)
	}
}

// checkFixedPoint applies changes until nothing is left to do. That is after one
// change, or after two when the first one wrote the gate.
func checkFixedPoint(t failer, facts lifecycle.PodFacts, change lifecycle.Change, permits lifecycle.Permits, opts lifecycle.Options, now time.Time) {
	t.Helper()
	facts = applied(facts, change)
	next := lifecycle.Advance(facts, permits, opts, now)
	if change.Gate != nil {
		facts = applied(facts, next)
		next = lifecycle.Advance(facts, permits, opts, now)
	}
	if !next.IsEmpty() || len(next.Transitions) > 0 {
		t.Fatalf("Advance is not at rest: first %v, then %v", change, next)
	}
}

// applied returns the facts once the change is written.
func applied(facts lifecycle.PodFacts, change lifecycle.Change) lifecycle.PodFacts {
	facts.Labels = change.Apply(facts.Labels)
	facts.Expected = maps.Clone(facts.Expected)
	for _, employer := range change.Forget {
		delete(facts.Expected, employer)
	}
	if change.Gate != nil {
		facts.Gate = lifecycle.GateFalse
		if *change.Gate {
			facts.Gate = lifecycle.GateTrue
		}
		facts.SteadyFor = 0
	}
	facts.Conditions = maps.Clone(facts.Conditions)
	for _, condition := range change.Conditions {
		if facts.Conditions == nil {
			facts.Conditions = map[string]string{}
		}
		facts.Conditions[condition.Type] = condition.Message
	}
	for _, kind := range change.RemoveConditions {
		delete(facts.Conditions, kind)
	}
	if change.GateReason != nil {
		facts.NotSyncing = *change.GateReason != ""
	}
	return facts
}

// checkedAdmitUpdate calls AdmitUpdate and checks the properties of every call: as for Advance,
// and it does not write the gate, and the time appears in the values of labels only.
func checkedAdmitUpdate(t failer, old, requested lifecycle.PodFacts, trusted bool, opts lifecycle.Options, now time.Time) lifecycle.Admission {
	t.Helper()
	oldBefore, requestedBefore := cloneFacts(old), cloneFacts(requested)
	admission := lifecycle.AdmitUpdate(old, requested, trusted, opts, now)
	if !sameFacts(oldBefore, old) || !sameFacts(requestedBefore, requested) {
		t.Fatalf("AdmitUpdate modified its arguments")
	}
	again := lifecycle.AdmitUpdate(oldBefore, requestedBefore, trusted, opts, now)
	if !reflect.DeepEqual(admission, again) {
		t.Fatalf("AdmitUpdate depends on the order of maps:\n%s", gocmp.Diff(admission, again))
	}
	if admission.Change.Gate != nil {
		t.Fatalf("AdmitUpdate writes the gate")
	}
	later := lifecycle.AdmitUpdate(old, requested, trusted, opts, now.Add(time.Hour))
	keys, laterKeys := maps.Keys(admission.Change.Apply(requested.Labels)), maps.Keys(later.Change.Apply(requested.Labels))
	if !slices.Equal(slices.Sorted(keys), slices.Sorted(laterKeys)) {
		t.Fatalf("AdmitUpdate depends on the time: %v, an hour later %v", admission.Change, later.Change)
	}
	return admission
}

func cloneFacts(f lifecycle.PodFacts) lifecycle.PodFacts {
	f.Labels = maps.Clone(f.Labels)
	f.Finalizers = slices.Clone(f.Finalizers)
	f.Expected, f.Gone = maps.Clone(f.Expected), slices.Clone(f.Gone)
	return f
}

func sameFacts(a, b lifecycle.PodFacts) bool {
	return maps.Equal(a.Labels, b.Labels) && slices.Equal(a.Finalizers, b.Finalizers) &&
		maps.Equal(a.Expected, b.Expected) && slices.Equal(a.Gone, b.Gone)
}

func clonePermits(p lifecycle.Permits) lifecycle.Permits {
	return lifecycle.Permits{PreCheck: maps.Clone(p.PreCheck), PostCheck: maps.Clone(p.PostCheck)}
}

func samePermits(a, b lifecycle.Permits) bool {
	return maps.Equal(a.PreCheck, b.PreCheck) && maps.Equal(a.PostCheck, b.PostCheck)
}
