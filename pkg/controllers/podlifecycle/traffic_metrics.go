package podlifecycle

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/runtime/earliest"
	"github.com/podops-dev/podops/pkg/runtime/metricseries"
)

// Bounds of the controllers that have series of their own. Each has at most two.
const (
	maxControllersPerNamespace = 8
	maxControllers             = 500

	// maxFinalizersPerPod is how many of a pod's finalizers are measured: the first by name.
	maxFinalizersPerPod = 4
)

// Metrics measures the pods that wait for a change of their traffic. It is safe for concurrent use.
type Metrics struct {
	clock   clock.PassiveClock
	waiting *prometheus.GaugeVec
	oldest  *prometheus.Desc
	names   *metricseries.Names

	mu   sync.Mutex
	pods map[types.NamespacedName]waitingPod

	// since is when the pods began to wait for a controller.
	since map[controllerSeries]*earliest.Times[types.NamespacedName]
}

// waitingPod are the series that a pod counts in.
type waitingPod struct {
	traffic, owner string
	controllers    []controllerSeries
}

// controllerSeries are the labels of a controller that pods wait for.
type controllerSeries struct{ namespace, controller, traffic string }

// NewMetrics registers the metrics. It fails when they are registered already.
func NewMetrics(registry prometheus.Registerer, clk clock.PassiveClock) (*Metrics, error) {
	m := &Metrics{
		clock: clk,
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "podops_pods_waiting_for_finalizer",
			Help: "Pods that have waited for 10 s for their traffic to go off or to come on, by whether the owner of the finalizer is known or unknown; " +
				"kubelet when the kubelet has not made the pod unready, pod when its drain endpoint has not confirmed that no connection is left.",
		}, []string{"traffic", "owner"}),
		oldest: prometheus.NewDesc("podops_finalizer_oldest_wait_seconds",
			"For how long the pod that has waited for the longest waits for a protection finalizer to be removed (traffic off) or added (traffic on), "+
				"from 10 s on. controller is that of the Service which expects the finalizer, or else the name of the finalizer after the slash. "+
				"Without a series no pod waits.",
			[]string{"namespace", "controller", "traffic"}, nil),
		names: metricseries.NewNames(metricseries.Limits{PerNamespace: maxControllersPerNamespace, InAll: maxControllers}),
		pods:  map[types.NamespacedName]waitingPod{}, since: map[controllerSeries]*earliest.Times[types.NamespacedName]{},
	}
	for _, collector := range []prometheus.Collector{m.waiting, m} {
		if err := registry.Register(collector); err != nil {
			return nil, fmt.Errorf("registering the metrics of pods that wait for traffic: %w", err)
		}
	}
	return m, nil
}

// see counts a pod under the owner that it waits for, if it has waited for long enough. controller returns the
// controller of a finalizer.
func (m *Metrics) see(key types.NamespacedName, facts lifecycle.PodFacts, now time.Time, controller func(finalizer string) string) {
	pending, waits := lifecycle.FindPending(facts)
	if !waits || now.Sub(pending.Since) < pendingAfter {
		m.forget(key)
		return
	}
	next := waitingPod{traffic: "off", owner: "known"}
	if pending.Reason == appsv1alpha1.ReasonCompleting {
		next.traffic = "on"
	}
	switch {
	case pending.Drains:
		next.owner = "pod"
	case len(pending.Finalizers) == 0:
		next.owner = "kubelet"
	case pending.Unknown:
		next.owner = "unknown"
	}
	var controllers []string
	for _, finalizer := range pending.Finalizers[:min(len(pending.Finalizers), maxFinalizersPerPod)] {
		controllers = append(controllers, controller(finalizer))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(key)
	for _, name := range controllers {
		next.controllers = append(next.controllers, m.begin(key, name, next.traffic, pending.Since))
	}
	m.pods[key] = next
	m.waiting.WithLabelValues(next.traffic, next.owner).Inc()
}

// begin records since when a pod waits for a controller, and returns the labels of the controller.
func (m *Metrics) begin(key types.NamespacedName, controller, traffic string, since time.Time) controllerSeries {
	series := controllerSeries{metricseries.Other, metricseries.Other, traffic}
	// A controller named like Other has no place: nothing would show that it must be released.
	if controller != metricseries.Other && m.names.Value(key.Namespace, controller) == controller {
		series.namespace, series.controller = key.Namespace, controller
	}
	if m.since[series] == nil {
		m.since[series] = &earliest.Times[types.NamespacedName]{}
	}
	m.since[series].Set(key, since)
	return series
}

// forget stops counting a pod.
func (m *Metrics) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(key)
}

// drop stops counting a pod. The caller holds the lock.
func (m *Metrics) drop(key types.NamespacedName) {
	last, ok := m.pods[key]
	if !ok {
		return
	}
	delete(m.pods, key)
	m.waiting.WithLabelValues(last.traffic, last.owner).Dec()
	for _, series := range last.controllers {
		if m.since[series] == nil {
			continue // two finalizers of one controller
		}
		if m.since[series].Remove(key); m.since[series].Len() > 0 {
			continue
		}
		delete(m.since, series)
		opposite := controllerSeries{series.namespace, series.controller, "on"}
		if series.traffic == "on" {
			opposite.traffic = "off"
		}
		if m.since[opposite] == nil {
			m.names.Release(series.namespace, series.controller)
		}
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(into chan<- *prometheus.Desc) { into <- m.oldest }

// Collect implements prometheus.Collector. Its cost grows with the controllers, and not with the pods.
func (m *Metrics) Collect(into chan<- prometheus.Metric) {
	for series, first := range m.firsts() {
		into <- prometheus.MustNewConstMetric(m.oldest, prometheus.GaugeValue, max(0, m.clock.Since(first).Seconds()),
			series.namespace, series.controller, series.traffic)
	}
}

// firsts returns since when the first pod waits for each controller.
func (m *Metrics) firsts() map[controllerSeries]time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	firsts := make(map[controllerSeries]time.Time, len(m.since))
	for series, times := range m.since {
		firsts[series], _ = times.First()
	}
	return firsts
}

// controllers returns a function that returns the controller of a finalizer of a pod: that of a Service which
// expects it, as the controller has written it there, or the name of the finalizer after the slash.
func (r *Reconciler) controllers(ctx context.Context, pod *corev1.Pod, facts lifecycle.PodFacts) func(finalizer string) string {
	return func(finalizer string) string {
		for _, employer := range slices.Sorted(maps.Keys(facts.Expected)) {
			key, isService := podstate.ParseEmployer(employer)
			if facts.Expected[employer] != finalizer || !isService || key.Namespace != pod.Namespace {
				continue
			}
			service := &corev1.Service{}
			if err := r.Reader.Get(ctx, key, service); err != nil {
				continue // the name of the finalizer has to do
			}
			if controller := service.Annotations[resourceconsist.ControllerAnnotationKey]; controller != "" {
				return strings.ToValidUTF8(controller, "_")
			}
		}
		_, name, _ := strings.Cut(finalizer, "/")
		return name
	}
}
