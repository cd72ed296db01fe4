package doctor

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

const kindAdapter = "trafficadapter"

func trafficChecks() []check {
	return []check{
		{id: "adapter-not-running", reads: []Source{SourceAdapters}, find: (*inspection).adapterNotRunning},
		{id: "adapter-not-used", reads: []Source{SourceAdapters}, find: (*inspection).adapterNotUsed},
		{id: "finalizer-orphaned", reads: []Source{SourcePods, SourceServices}, find: (*inspection).finalizerOrphaned},
		{id: "service-not-cleaned", reads: []Source{SourceServices}, find: (*inspection).serviceNotCleaned},
		{id: "service-not-confirmed", reads: []Source{SourceServices, SourcePods}, find: (*inspection).serviceNotConfirmed},
		{id: "traffic-off-long", reads: []Source{SourcePods}, find: (*inspection).trafficOffLong},
		{id: "traffic-on-long", reads: []Source{SourcePods}, find: (*inspection).trafficOnLong},
	}
}

// falseCondition returns a finding for each TrafficAdapter with a condition that is False.
func (in *inspection) falseCondition(kind, words string, remedy func(appsv1alpha1.TrafficAdapter) string) []Finding {
	var findings []Finding
	for _, adapter := range in.Adapters {
		condition := meta.FindStatusCondition(adapter.Status.Conditions, kind)
		if condition == nil || condition.Status != metav1.ConditionFalse {
			continue
		}
		findings = append(findings, Finding{
			Level: LevelError, Object: object(kindAdapter, "", adapter.Name), Remedy: remedy(adapter),
			Text: fmt.Sprintf("%s (%s): %s; it has %d Services", words, condition.Reason, text.Line(condition.Message, maxMessage), adapter.Status.ServiceCount),
		})
	}
	return findings
}

func (in *inspection) adapterNotRunning() []Finding {
	return in.falseCondition(appsv1alpha1.ConditionRunning, "its program does not run", func(adapter appsv1alpha1.TrafficAdapter) string {
		if lease := adapter.Spec.Lease; lease != nil {
			return fmt.Sprintf("kubectl get pods,leases -n %s", lease.Namespace)
		}
		return fmt.Sprintf("kubectl describe %s %s", kindAdapter, adapter.Name)
	})
}

func (in *inspection) adapterNotUsed() []Finding {
	return in.falseCondition(appsv1alpha1.ConditionReady, "is not used", func(adapter appsv1alpha1.TrafficAdapter) string {
		return edit(kindAdapter, "", adapter.Name)
	})
}

// serviceNotCleaned finds Services that wait for their adapter to remove them from its provider. The remedy keeps all other finalizers, and
// changes only the version that was read.
func (in *inspection) serviceNotCleaned() []Finding {
	var findings []Finding
	for i := range in.Services {
		service := &in.Services[i]
		if service.DeletionTimestamp == nil || !isAdapted(service) || in.now.Sub(service.DeletionTimestamp.Time) < in.long {
			continue
		}
		kept := slices.DeleteFunc(slices.Clone(service.Finalizers), isCleanFinalizer)
		if kept == nil {
			kept = []string{}
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": service.ResourceVersion, "finalizers": kept}})
		if err != nil {
			panic(err) // strings are always encoded
		}
		findings = append(findings, Finding{
			Level: LevelError, Object: object("service", service.Namespace, service.Name),
			Text: fmt.Sprintf("has been terminating for %s: its adapter has not removed it from the provider. Start the program of the adapter; if it was "+
				"retired, remove the entries at the provider by hand, and then its finalizer", duration.HumanDuration(in.now.Sub(service.DeletionTimestamp.Time))),
			Remedy: fmt.Sprintf("kubectl patch service -n %s %s --type=merge --patch '%s'", service.Namespace, service.Name, patch),
		})
	}
	return findings
}

// serviceNotConfirmed finds Services whose clients may know a pod for longer than the settle time of the manager, which is that of their
// kube-proxy: no adapter confirms that traffic is off, and the pods set no settle time of their own.
func (in *inspection) serviceNotConfirmed() []Finding {
	var findings []Finding
	for i := range in.Services {
		service := &in.Services[i]
		level, clients := slowClients(service)
		timed := slices.DeleteFunc(in.selected(service.Namespace, &metav1.LabelSelector{MatchLabels: service.Spec.Selector}), func(pod *corev1.Pod) bool {
			return lifecycle.NewPodFacts(pod).SettleTime != nil
		})
		if clients == "" || isAdapted(service) || len(service.Spec.Selector) == 0 || len(timed) == 0 {
			continue
		}
		findings = append(findings, Finding{
			Level: level, Object: object("service", service.Namespace, service.Name),
			Text: fmt.Sprintf("%s, and no adapter confirms that the traffic of %d pods is off: they are operated on after the settle time of the manager",
				clients, len(timed)),
			Remedy: "Set the annotation " + appsv1alpha1.SettleTimeAnnotationKey + " in the pod template, or use an adapter",
		})
	}
	return findings
}

// slowClients returns how clients of a Service learn that a pod serves no more, if not by kube-proxy.
func slowClients(service *corev1.Service) (Level, string) {
	switch {
	case service.Spec.Type == corev1.ServiceTypeLoadBalancer && service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal:
		return LevelWarning, "its load balancer checks nodes at an interval of its own (externalTrafficPolicy: Local)"
	case service.Spec.Type == corev1.ServiceTypeLoadBalancer:
		return LevelInfo, "its load balancer may have pods as targets"
	case service.Spec.ClusterIP == corev1.ClusterIPNone:
		return LevelInfo, "its clients resolve a name and may keep the address (headless)"
	default:
		return LevelInfo, ""
	}
}

// finalizerOrphaned finds protection finalizers that no controller removes: no Service has them, and no
// employer that exists expects them, or the adapter of their Service was retired.
func (in *inspection) finalizerOrphaned() []Finding {
	return in.perOwner(func(pod *corev1.Pod) *Finding {
		orphans, retired := in.orphans(pod), in.retired(pod)
		switch {
		case len(orphans) == 0 && len(retired) == 0:
			return nil
		case len(orphans) == 0:
			return &Finding{Level: LevelError, Remedy: unstick(pod), Text: "has the finalizer " + retired[0] + ": " + in.retiredText(pod, retired[0])}
		}
		finding := &Finding{
			Level: LevelWarning, Remedy: unstick(pod),
			Text: fmt.Sprintf("has the finalizer %s, whose controller no longer exists: no Service of the namespace has it, "+
				"and no employer that exists expects it", orphans[0]),
		}
		if facts := lifecycle.NewPodFacts(pod); facts.Terminating || facts.Preparing() {
			finding.Level = LevelError
			finding.Text += "; the pod waits for its removal"
		}
		return finding
	})
}

// orphans returns the protection finalizers of a pod whose controller no longer exists.
func (in *inspection) orphans(pod *corev1.Pod) []string {
	facts := lifecycle.NewPodFacts(pod)
	return slices.DeleteFunc(slices.Clone(pod.Finalizers), func(finalizer string) bool {
		return !lifecycle.IsProtectionFinalizer(finalizer) || in.ofServices[pod.Namespace][finalizer] != nil || in.expected(facts, finalizer)
	})
}

// retiredAfter is for how long a pod waits before the adapter of a Service counts as retired: it may be about to begin.
const retiredAfter = time.Minute

// retired returns the protection finalizers that a pod waits for whose Services have no finalizer of an adapter.
func (in *inspection) retired(pod *corev1.Pod) []string {
	since, waits := waitsForOff(pod, lifecycle.NewPodFacts(pod))
	if !waits || in.now.Sub(since) < retiredAfter {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(pod.Finalizers), func(finalizer string) bool {
		service := in.ofServices[pod.Namespace][finalizer]
		return service == nil || isAdapted(service)
	})
}

func (in *inspection) retiredText(pod *corev1.Pod, finalizer string) string {
	return fmt.Sprintf("Service %s, which it is of, has the finalizer of no adapter (%s...), as after an adapter was retired",
		in.ofServices[pod.Namespace][finalizer].Name, resourceconsist.CleanFinalizerPrefix)
}

// isAdapted reports whether a Service has the finalizer by which an adapter keeps it until everything is removed from the provider.
func isAdapted(service *corev1.Service) bool {
	return slices.ContainsFunc(service.Finalizers, isCleanFinalizer)
}

func isCleanFinalizer(name string) bool {
	return strings.HasPrefix(name, resourceconsist.CleanFinalizerPrefix)
}

// waitsForOff returns since when a pod waits until its traffic is off: it prepares or terminates.
func waitsForOff(pod *corev1.Pod, facts lifecycle.PodFacts) (time.Time, bool) {
	if facts.Terminating {
		return pod.DeletionTimestamp.Time, true
	}
	pending, ok := lifecycle.FindPending(facts)
	return pending.Since, ok && pending.Reason == appsv1alpha1.ReasonPreparing && !pending.Since.IsZero()
}

// expected reports whether an employer expects a finalizer. An employer that is a Service must exist;
// employers of other kinds are not read.
func (in *inspection) expected(facts lifecycle.PodFacts, finalizer string) bool {
	for _, employer := range slices.Sorted(maps.Keys(facts.Expected)) {
		if facts.Expected[employer] != finalizer {
			continue
		}
		name, isService := strings.CutPrefix(employer, "Service/")
		namespace, name, _ := strings.Cut(name, "/")
		if !isService || in.services[types.NamespacedName{Namespace: namespace, Name: name}] != nil {
			return true
		}
	}
	return false
}

func (in *inspection) trafficOffLong() []Finding {
	return in.pendingLong(appsv1alpha1.ReasonPreparing, unstick)
}

func (in *inspection) trafficOnLong() []Finding {
	return in.pendingLong(appsv1alpha1.ReasonCompleting, explain)
}

// pendingLong finds pods whose traffic should have changed long ago.
func (in *inspection) pendingLong(reason string, remedy func(*corev1.Pod) string) []Finding {
	return in.perOwner(func(pod *corev1.Pod) *Finding {
		pending, ok := lifecycle.FindPending(lifecycle.NewPodFacts(pod))
		if !ok || pending.Reason != reason || pending.Since.IsZero() || in.now.Sub(pending.Since) < in.long {
			return nil
		}
		remedy := remedy
		if pending.Drains {
			remedy = endDrain
		}
		return &Finding{Level: LevelWarning, Remedy: remedy(pod), Text: fmt.Sprintf("%s, for %s", pending.Text, age(in.now, pending.Since))}
	})
}
