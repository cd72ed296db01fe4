package podtransitionrule

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/permit"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask/dispatch"
	"github.com/podops-dev/podops/test/builders"
	"github.com/podops-dev/podops/test/sim"
)

// harness is one Reconciler whose watches are as fast as its writes: it has seen each
// of its writes. For slower watches see simulation.
type harness struct {
	t          testing.TB
	index      *podindex.Index
	store      cache.ReflectorStore
	engine     *interceptor
	reconciler *Reconciler
	clock      *testingclock.FakePassiveClock
	events     *events.FakeRecorder
	news       int // notifications of the index, and of results
	service    *service

	// refuse returns why a pod cannot be written; nil: all can.
	refuse func(pod string) error

	// refuseStatus returns why a status cannot be written; nil: all can.
	refuseStatus func() error

	// refuseRecord returns why the record of a PodDisruptionBudget cannot be written; nil: all can.
	refuseRecord func() error

	mu       sync.Mutex
	version  int
	pods     map[string]*corev1.Pod
	statuses []*appsv1alpha1.PodTransitionRule // as written, in order
	records  map[string]string                 // the last annotations of PodDisruptionBudgets, by name
	writes   int                               // of these annotations
	stamped  []string                          // names of the pods that were permitted, or touched

	// explained are the names of the pods of which only annotations were written.
	explained []string

	// undone are the names of the pods whose operation was cancelled.
	undone []string

	// moves are the last steps of each pod.
	moves map[string][]lifecycle.Transition
}

func newHarness(t testing.TB, options opa.Options) *harness {
	t.Helper()
	for _, limit := range []*time.Duration{&options.Timeout, &options.CustomTimeout} {
		if *limit == 0 {
			*limit = time.Minute // other tests may keep the machine busy
		}
	}
	e, err := opa.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return newHarnessWith(t, e)
}

// newHarnessWith returns a harness with an engine that others may use, too.
func newHarnessWith(t testing.TB, e *opa.Engine) *harness {
	t.Helper()
	s := &harness{
		t: t, clock: testingclock.NewFakePassiveClock(builders.Epoch.Add(time.Hour + 123456789*time.Nanosecond)), events: events.NewFakeRecorder(10000),
		pods: map[string]*corev1.Pod{}, records: map[string]string{}, version: 100, service: &service{}, moves: map[string][]lifecycle.Transition{},
	}
	s.index = podindex.NewIndex(func(string) { s.news++ })
	s.store = s.index.PodStore()
	s.must(s.store.Replace(nil, s.next()))
	s.engine = &interceptor{Engine: evaluation.NewEngine(e), around: map[rule.RuleID]func(evaluation.Program) evaluation.Program{}}
	s.restart(Config{})
	return s
}

// restart makes a Reconciler without memory of earlier rounds.
func (s *harness) restart(c Config) {
	c.Index, c.Engine, c.Pods, c.Statuses, c.Budgets, c.Recorder, c.Metrics, c.Clock = s.index, s.engine, s, s, s, s.events, newMetrics(s.t), s.clock
	c.Undo = s
	c.Caller, c.InFlight, c.Wake = s.service, dispatch.NewInFlight(), func(string) { s.news++ }
	s.reconciler = New(c)
}

// interceptor wraps the programs of an engine in programs of a test.
type interceptor struct {
	evaluation.Engine
	around map[rule.RuleID]func(evaluation.Program) evaluation.Program

	// compiling is called before a module is compiled, unless it is nil.
	compiling func()
}

// Inspect implements evaluation.Engine.
func (i *interceptor) Inspect(ctx context.Context, source opa.Source) (opa.Inspection, error) {
	if i.compiling != nil && !i.IsCompiled(source.Module, source.ParametersSchema) {
		i.compiling()
	}
	return i.Engine.Inspect(ctx, source)
}

// Prepare implements evaluation.Engine.
func (i *interceptor) Prepare(ctx context.Context, module spec.Module) (evaluation.Program, error) {
	program, err := i.Engine.Prepare(ctx, module)
	if around := i.around[module.ID]; err == nil && around != nil {
		return around(program), nil
	}
	return program, err
}

// intercept wraps the programs of the rules of an object, before they are prepared. The argument of around
// is the place of the rule in the object.
func (s *harness) intercept(object string, around func(int, evaluation.Program) evaluation.Program) {
	s.t.Helper()
	for i, entry := range s.object(object).Spec.Rules {
		id := rule.RuleID{Ruleset: ruleKey(s.object(object)), Rule: entry.Name}
		s.engine.around[id] = func(program evaluation.Program) evaluation.Program { return around(i, program) }
	}
}

func newMetrics(t testing.TB) *Metrics {
	t.Helper()
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return metrics
}

// deliver keeps the result of a call.
func (s *harness) deliver(result dispatch.Result) {
	s.reconciler.state.calls.Deliver(result, s.clock.Now())
	s.news++
}

func (s *harness) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *harness) next() string {
	s.version++
	return strconv.Itoa(s.version)
}

// put stores a pod in the namespace default.
func (s *harness) put(pods ...*corev1.Pod) {
	s.t.Helper()
	for _, pod := range pods {
		pod = pod.DeepCopy()
		pod.ResourceVersion = s.next()
		s.pods[pod.Name] = pod
		s.must(s.store.Update(pod))
	}
}

// rules makes or edits the PodTransitionRule of a name, which selects app=web.
func (s *harness) rules(name string, rules ...appsv1alpha1.TransitionRule) {
	object := s.object(name)
	if object == nil {
		object = &appsv1alpha1.PodTransitionRule{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name + "-uid")},
			Spec:       appsv1alpha1.PodTransitionRuleSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		}
	}
	object = object.DeepCopy()
	object.ResourceVersion = s.next()
	object.Generation++
	object.Spec.Rules = rules
	s.index.SetRule(object)
}

// object is a PodTransitionRule as the index has it.
func (s *harness) object(name string) *appsv1alpha1.PodTransitionRule {
	for _, rule := range s.index.Snapshot("default", nil).Rules {
		if rule.Object.Name == name {
			return rule.Object
		}
	}
	return nil
}

// round makes one round.
func (s *harness) round() reconcile.Result {
	s.t.Helper()
	result, err := s.reconciler.Reconcile(s.t.Context(), "default")
	s.must(err)
	return result
}

// step lets time pass and makes one round.
func (s *harness) step(d time.Duration) reconcile.Result {
	s.t.Helper()
	s.clock.SetTime(s.clock.Now().Add(d))
	return s.round()
}

// Write implements PodWriter.
func (s *harness) Write(_ context.Context, pod *corev1.Pod, change lifecycle.Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		if err := s.refuse(pod.Name); err != nil {
			return err
		}
	}
	if s.pods[pod.Name].ResourceVersion != pod.ResourceVersion {
		return errConflict()
	}
	next := pod.DeepCopy()
	next.Labels = change.Apply(next.Labels)
	for key, value := range change.Annotations {
		if value == nil {
			delete(next.Annotations, key)
			continue
		}
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, key, *value)
	}
	if change.Gate != nil {
		sim.SetCondition(next, appsv1alpha1.ServiceReadyGate, *change.Gate, "", s.clock.Now())
	}
	if len(change.Set)+len(change.Remove) > 0 {
		s.stamped, s.moves[pod.Name] = append(s.stamped, pod.Name), change.Transitions
	} else {
		s.explained = append(s.explained, pod.Name)
	}
	s.put(next)
	return nil
}

// Undo implements Undoer: admission removes the labels of the operation.
func (s *harness) Undo(_ context.Context, pod *corev1.Pod, id, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pods[pod.Name].ResourceVersion != pod.ResourceVersion {
		return errConflict()
	}
	next := pod.DeepCopy()
	for key := range next.Labels {
		if strings.HasSuffix(key, "/"+id) {
			delete(next.Labels, key)
		}
	}
	s.undone = append(s.undone, pod.Name)
	s.put(next)
	return nil
}

// CaughtUp implements PodWriter.
func (s *harness) CaughtUp(*corev1.Pod) bool { return true }

// WriteStatus implements StatusWriter.
func (s *harness) WriteStatus(_ context.Context, object *appsv1alpha1.PodTransitionRule) (*appsv1alpha1.PodTransitionRule, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuseStatus != nil {
		if err := s.refuseStatus(); err != nil {
			return nil, err
		}
	}
	stored := object.DeepCopy()
	stored.Status = appsv1alpha1.PodTransitionRuleStatus{}
	text, err := json.Marshal(object.Status)
	s.must(err)
	s.must(json.Unmarshal(text, &stored.Status))
	// A status that is stored with other content would be written again and again.
	if !apiequality.Semantic.DeepEqual(object.Status, stored.Status) {
		s.t.Errorf("the status is stored with other content (-written +stored):\n%s", cmp.Diff(object.Status, stored.Status))
	}
	stored.ResourceVersion = s.next()
	s.statuses = append(s.statuses, stored)
	return stored, nil
}

// WriteRecord implements BudgetWriter.
func (s *harness) WriteRecord(
	_ context.Context, budget podindex.DisruptionBudget, record *appsv1alpha1.PermitRecord,
) (podindex.DisruptionBudget, error) {
	if s.refuseRecord != nil {
		if err := s.refuseRecord(); err != nil {
			return podindex.DisruptionBudget{}, err
		}
	}
	s.records[budget.Name] = permit.Encode(record)
	s.writes++
	budget.ResourceVersion, budget.Record, budget.Inherited = s.next(), permit.Decode(s.records[budget.Name]), false
	return budget, nil
}

// written returns the names of the PodTransitionRules whose status was written since its last call.
func (s *harness) written() []string {
	names := []string{}
	for _, object := range s.statuses {
		names = append(names, object.Name)
	}
	s.statuses = nil
	return names
}

// permitted returns the names of the pods that were written since its last call,
// sorted.
func (s *harness) permitted() []string {
	names := slices.Sorted(slices.Values(s.stamped))
	s.stamped = nil
	return names
}

// recorded returns the events since its last call.
func (s *harness) recorded() []string {
	var all []string
	for {
		select {
		case event := <-s.events.Events:
			all = append(all, event)
		default:
			return all
		}
	}
}

// web is a pod web-<i> that serves, under the rules of a harness.
func web(i int) *builders.PodBuilder {
	return builders.MakePod(fmt.Sprintf("web-%03d", i)).Label("app", "web").Available()
}

// waits makes it wait since i minutes after the epoch.
func waits(i int) *builders.PodBuilder {
	return web(i).Waiting("a", "upgrade", builders.Epoch.Add(time.Duration(i)*time.Minute+987654321*time.Nanosecond))
}

func atMostUnavailable(name, most string) appsv1alpha1.TransitionRule {
	bound := intstr.Parse(most)
	rule := ruleOfKind("max", &bound, nil)
	rule.Name = name
	return rule
}

func labelled(name, key string) appsv1alpha1.TransitionRule {
	rule := ruleOfKind("label", nil, nil)
	rule.Name = name
	rule.LabelCheck = &appsv1alpha1.LabelCheck{Requires: &metav1.LabelSelector{MatchLabels: map[string]string{key: "yes"}}}
	return rule
}

func enforced(rule appsv1alpha1.TransitionRule, how appsv1alpha1.Enforcement) appsv1alpha1.TransitionRule {
	rule.Enforcement = how
	return rule
}

func inPostCheck(rule appsv1alpha1.TransitionRule) appsv1alpha1.TransitionRule {
	rule.Stage = appsv1alpha1.StagePostCheck
	return rule
}
