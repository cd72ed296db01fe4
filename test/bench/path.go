package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/controllers/podtransitionrule"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/permit"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/test/builders"
)

// path holds the costs of one event from the watch to the resulting writes, by phase.
type path struct{ rows []pathRow }

// pathRow is the path in one workload: each waiting pod is approved in turn, which permits
// it.
type pathRow struct {
	at cell

	// index adds the event and keeps the counts, view is the snapshot of the round, engine
	// evaluates the rules, plan allocates slots, rest is everything else: texts, status,
	// events, the labels of the permit. total is all of them.
	index, view, engine, plan, rest, total time.Duration

	// writes of pods and statuses, per event.
	pods, statuses float64
}

// server is the API server of a round: it accepts every write.
type server struct {
	pods, statuses int
	version        int
}

// Write implements podtransitionrule.PodWriter.
func (s *server) Write(context.Context, *corev1.Pod, lifecycle.Change) error {
	s.pods++
	return nil
}

// CaughtUp implements podtransitionrule.PodWriter.
func (s *server) CaughtUp(*corev1.Pod) bool { return true }

// WriteStatus implements podtransitionrule.StatusWriter.
func (s *server) WriteStatus(_ context.Context, object *appsv1alpha1.PodTransitionRule) (*appsv1alpha1.PodTransitionRule, error) {
	s.statuses++
	s.version++
	stored := object.DeepCopy()
	stored.ResourceVersion = strconv.Itoa(s.version)
	return stored, nil
}

func measurePath(samples int, progress io.Writer) (path, error) {
	measured := path{}
	for _, at := range []cell{{100, 10}, {1000, 100}, {10000, 100}} {
		start := time.Now()
		row, err := measureOnePath(at, samples*10)
		if err != nil {
			return path{}, err
		}
		measured.rows = append(measured.rows, row)
		_, _ = fmt.Fprintf(progress, "measured the path with %d pods, %d waiting in %.1fs\n", at.pods, at.waiting, time.Since(start).Seconds())
	}
	return measured, nil
}

// harness is a manager without a server.
type harness struct {
	workload   *workload
	server     *server
	index      *podindex.Index
	reconciler *podtransitionrule.Reconciler

	// alone has the same pods, and measures the engine alone.
	alone *podOps
}

func newHarness(at cell) (*harness, error) {
	r := &harness{workload: newWorkload(usualRules(), at.pods, at.waiting), server: &server{version: 1}, index: podindex.NewIndex(func(string) {})}
	for n := range r.workload.waiting {
		r.workload.withhold(n)
	}
	fill(r.index, r.workload)
	e, err := opa.New(opa.Options{})
	if err != nil {
		return nil, err
	}
	if r.alone, err = newPodOps(e, r.workload); err != nil {
		return nil, err
	}
	metrics, err := podtransitionrule.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		return nil, err
	}
	r.reconciler = podtransitionrule.New(podtransitionrule.Config{
		Index: r.index, Engine: evaluation.NewEngine(e), Pods: r.server, Statuses: r.server, Recorder: &events.FakeRecorder{},
		Metrics: metrics, Clock: clocktesting.NewFakePassiveClock(builders.Epoch.Add(time.Hour)),
	})
	return r, nil
}

// permit changes the labels of a waiting pod so that every rule passes it; withhold so that
// one rule does not.
func (f *workload) permit(n int) *corev1.Pod   { return f.relabel(n, "critical", "false") }
func (f *workload) withhold(n int) *corev1.Pod { return f.relabel(n, "critical", "true") }

func (f *workload) relabel(n int, key, value string) *corev1.Pod {
	at := f.waiting[n%len(f.waiting)]
	pod := f.pods[at].DeepCopy()
	pod.Labels[key], pod.Labels["approved"], pod.Labels["zone"] = value, "false", "a"
	f.pods[at] = f.stored(pod)
	return f.pods[at]
}

func (r *harness) reconcile(ctx context.Context) error {
	_, err := r.reconciler.Reconcile(ctx, namespace)
	return err
}

func measureOnePath(at cell, samples int) (pathRow, error) {
	ctx := context.Background()
	r, err := newHarness(at)
	if err != nil {
		return pathRow{}, err
	}
	if err := r.reconcile(ctx); err != nil {
		return pathRow{}, err
	}
	r.alone.round(nil)
	var index, view, engine, plan, round []float64
	note := func(to *[]float64, f func() error) error {
		start := cpu()
		err := f()
		*to = append(*to, float64(cpu()-start))
		return err
	}
	before := *r.server
	store := r.index.PodStore()
	for n := range samples {
		pod := r.workload.permit(n)
		if err := note(&index, func() error { return store.Update(pod) }); err != nil {
			return pathRow{}, err
		}
		if err := note(&round, func() error { return r.reconcile(ctx) }); err != nil {
			return pathRow{}, err
		}
		seen := podindex.Snapshot{}
		_ = note(&view, func() error { seen = r.index.Snapshot(namespace, nil); return nil })
		if err := r.alone.store.Update(pod); err != nil {
			return pathRow{}, err
		}
		_ = note(&engine, func() error { r.alone.evaluate(seen.Rules[0]); return nil })
		_ = note(&plan, func() error { allocateOne(seen, pod.UID); return nil })
		// The pod is withheld again, outside of the measurement.
		if err := store.Update(r.workload.withhold(n)); err != nil {
			return pathRow{}, err
		}
		if err := r.reconcile(ctx); err != nil {
			return pathRow{}, err
		}
		r.alone.evaluate(r.index.Snapshot(namespace, nil).Rules[0])
	}
	median := func(of []float64) time.Duration { return time.Duration(quantile(of, 0.5)) }
	row := pathRow{
		at: at, index: median(index), view: median(view), engine: median(engine), plan: median(plan),
		pods:     float64(r.server.pods-before.pods) / float64(samples),
		statuses: float64(r.server.statuses-before.statuses) / float64(samples),
	}
	row.total = row.index + median(round)
	row.rest = row.total - row.index - row.view - row.engine - row.plan
	return row, nil
}

// allocateOne plans for one candidate that needs a slot.
func allocateOne(seen podindex.Snapshot, uid types.UID) {
	for _, request := range seen.Rules[0].Waiting {
		if request.Pod.UID != uid {
			continue
		}
		id := rule.RuleID{Ruleset: objectName(), Rule: "budget"}
		permit.Next(
			[]permit.Budget{{Ruleset: object, Slots: map[string]int{"budget": 1}, Live: seen.Rules[0].Live}},
			[]permit.Candidate{{Request: request, Needs: []rule.RuleID{id}, Budgets: []string{object}}}, nil, time.Time{})
	}
}

func printPath(out io.Writer, p path) {
	rows := [][]string{{"N", "W", "index", "view", "engine", "plan", "rest", "total", "engine's share", "pod writes", "status writes"}}
	for _, r := range p.rows {
		share := float64(r.engine) / float64(r.total)
		rows = append(rows, []string{
			fmt.Sprint(r.at.pods), fmt.Sprint(r.at.waiting), micros(r.index), micros(r.view), micros(r.engine), micros(r.plan),
			micros(r.rest), micros(r.total), fmt.Sprintf("%.0f %%", 100*share), fmt.Sprintf("%.1f", r.pods), fmt.Sprintf("%.1f", r.statuses),
		})
	}
	table(out, `The whole path: CPU in microseconds from a watch event that lets a pod pass to the writes, which
a stub takes: the index takes the event in and keeps the counts, the view is made, the engine
evaluates, slots are allocated; the rest is texts, status, events and stamps.`,
		[]int{6, 6, 8, 8, 8, 8, 8, 8, 14, 10, 13}, rows...)
}
